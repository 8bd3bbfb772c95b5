# teardown.sh look|apply: what rdmabench and its playbooks left here, as JSON; or remove it.
PATH=$PATH:/usr/sbin:/sbin
mode=$1
todo=
step() { # label, command and arguments
    label=$1
    shift
    todo="$todo${todo:+, }\"$label\""
    [ "$mode" != apply ] || "$@" || exit 1
}
if [ -d /run/systemd/system ] && [ -e /etc/systemd/system/rdmabench-rxe.service ]; then
    step "disable rdmabench-rxe.service" systemctl -q disable --now rdmabench-rxe
fi
for record in /var/lib/rdmabench/rxe/*; do
    name=${record##*/}
    # only a device that is still on the netdev it was made for is ours
    [ -f "$record" ] && [ "$(cat "/sys/class/infiniband/$name/parent" 2> /dev/null)" = "$(cat "$record")" ] || continue
    step "remove $name" rdma link delete "$name"
done
home=$HOME
[ -z "$SUDO_USER" ] || home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
units=/etc/systemd/system
for path in /var/lib/rdmabench /etc/security/limits.d/90-rdmabench.conf /etc/modules-load.d/rdmabench.conf \
    /etc/modules-load.d/rdmabench-gpudirect.conf "$units/rdmabench-rxe.service" \
    "$units/ssh.service.d/90-rdmabench.conf" "$units/sshd.service.d/90-rdmabench.conf" \
    "$units/slurmd.service.d/90-rdmabench.conf" "${home:-/nonexistent}/.cache/rdmabench"; do
    [ ! -e "$path" ] || step "remove $path" rm -rf -- "$path"
done
[ "$mode" = look ] || exit 0
printf '{"todo": [%s]}\n' "$todo"
