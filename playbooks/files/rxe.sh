# rxe.sh look|apply NETDEV MTU NAME: a soft-RoCE device on NETDEV (empty: that of the default route).
# look prints what is not as it should be, as JSON; apply makes it so.
PATH=$PATH:/usr/sbin:/sbin
mode=$1 netdev=$2 mtu=$3 name=$4
records=/var/lib/rdmabench/rxe
unit=/etc/systemd/system/rdmabench-rxe.service
[ -n "$netdev" ] || netdev=$(ip route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
name=${name:-$(printf 'rxe_%s' "$netdev" | cut -c 1-15)}
todo=
step() { # label, command and arguments
    label=$1
    shift
    todo="$todo${todo:+, }\"$label\""
    [ "$mode" != apply ] || "$@" || exit 1
}
device_of() { # the soft-RoCE device on a netdev
    for device in /sys/class/infiniband/*; do
        [ "$(cat "$device/parent" 2> /dev/null)" != "$1" ] || echo "${device##*/}"
    done
}
make() {
    [ -e /sys/module/rdma_rxe ] || modprobe rdma_rxe || return 1
    # each way is missing somewhere: old rdma-core, new kernels, new rdma-core
    if rdma link help 2>&1 | grep -q 'link add'; then rdma link add "$name" type rxe netdev "$netdev" || return 1
    elif [ -e /sys/module/rdma_rxe/parameters/add ]; then echo "$netdev" > /sys/module/rdma_rxe/parameters/add || return 1
    elif command -v rxe_cfg > /dev/null; then rxe_cfg start > /dev/null && rxe_cfg add "$netdev" || return 1
    else echo "no way to make a device: install iproute2 4.20 or later" >&2; return 1; fi
    mkdir -p "$records"
    echo "$netdev" > "$records/$(device_of "$netdev" | head -n 1)"
}
write_unit() {
    printf '%s\n' "$text" > "$unit" && chmod 644 "$unit" && systemctl daemon-reload && systemctl -q enable rdmabench-rxe
}
problem() {
    if [ -z "$netdev" ]; then echo "no default route names a netdev: set rdma_netdev"
    elif [ ! -e "/sys/class/net/$netdev" ]; then echo "there is no netdev $netdev"
    elif [ -z "$device" ] && [ ! -e /sys/module/rdma_rxe ] && ! modprobe -n -q rdma_rxe 2> /dev/null; then
        echo "kernel $(uname -r) has no rdma_rxe: install linux-modules-extra-$(uname -r) (RHEL: kernel-modules-extra)"
    fi
}
device=$(device_of "$netdev" | head -n 1)
problem=$(problem)
if [ -z "$problem" ]; then
    [ "$(($(cat "/sys/class/net/$netdev/flags") & 1))" = 1 ] || step "set $netdev up" ip link set "$netdev" up
    [ "$(cat "/sys/class/net/$netdev/mtu")" -ge "$mtu" ] || step "MTU of $netdev to $mtu" ip link set "$netdev" mtu "$mtu"
    [ -n "$device" ] || step "make $name on $netdev" make
    text="[Unit]
Description=Soft-RoCE on $netdev
After=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/usr/bin/env modprobe rdma_rxe
ExecStart=-/usr/bin/env ip link set $netdev mtu $(($(cat "/sys/class/net/$netdev/mtu") > mtu ? $(cat "/sys/class/net/$netdev/mtu") : mtu))
ExecStart=-/usr/bin/env rdma link add ${device:-$name} type rxe netdev $netdev
[Install]
WantedBy=multi-user.target"
    if [ -d /run/systemd/system ] && [ "$(cat "$unit" 2> /dev/null)" != "$text" ]; then
        step "write $unit" write_unit
    fi
fi
[ "$mode" = look ] || exit 0
printf '{"problem": "%s", "todo": [%s]}\n' "$problem" "$todo"
