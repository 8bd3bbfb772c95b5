# What is not yet as it should be, as JSON: for each netdev the commands that change it.
# Arguments: the root of sysfs, the priority, the DSCP, netdevs.
PATH=$PATH:/usr/sbin:/sbin
sys=$1 priority=$2 dscp=$3
shift 3
if [ $# = 0 ]; then
    for device in "$sys"/class/infiniband/*; do
        [ -e "$device" ] && [ ! -e "$device/parent" ] || continue
        for netdev in "$device"/device/net/*; do [ -e "$netdev" ] && set -- "$@" "${netdev##*/}"; done
    done
fi
wanted= on=
for each in 0 1 2 3 4 5 6 7; do
    bit=0
    [ "$each" = "$priority" ] && bit=1
    wanted="$wanted${wanted:+,}$bit"
done
separator=
printf '['
for netdev in "$@"; do
    commands=
    add() { commands="$commands${commands:+, }\"$1\""; }
    if shown=$(mlnx_qos -i "$netdev" 2> /dev/null); then
        tool=mlnx_qos
        echo "$shown" | grep -q 'trust state: dscp' || add "mlnx_qos -i $netdev --trust dscp"
        now=$(echo "$shown" | sed -n 's/^[[:space:]]*enabled[[:space:]]*//p' | head -n 1 | sed 's/[[:space:]]*$//; s/[[:space:]][[:space:]]*/,/g')
        [ "$now" = "$wanted" ] || add "mlnx_qos -i $netdev --pfc $wanted"
    elif shown=$(dcb pfc show dev "$netdev" 2> /dev/null); then
        tool=dcb
        now=$(echo "$shown" | grep -o '[0-7]:on' | tr -d '\n')
        [ "$now" = "$priority:on" ] || add "dcb pfc set dev $netdev prio-pfc all:off $priority:on"
        if order=$(dcb apptrust show dev "$netdev" 2> /dev/null); then
            case $order in *"order dscp"*) ;; *) add "dcb apptrust set dev $netdev order dscp" ;; esac
        fi
        dcb app show dev "$netdev" dscp-prio 2> /dev/null | grep -Eq "(^|[^0-9])$dscp:$priority" ||
            add "dcb app replace dev $netdev dscp-prio $dscp:$priority"
    else
        tool=none
    fi
    # PFC and global pause exclude each other
    ethtool -a "$netdev" 2> /dev/null | grep -Eq '^(RX|TX):[[:space:]]*on' && [ "$tool" != none ] &&
        add "ethtool -A $netdev rx off tx off"
    for role in roce_np roce_rp; do
        file=$sys/class/net/$netdev/ecn/$role/enable/$priority
        [ ! -e "$file" ] || [ "$(cat "$file")" = 1 ] || add "echo 1 > $file"
    done
    printf '%s{"netdev": "%s", "tool": "%s", "commands": [%s]}' "$separator" "$netdev" "$tool" "$commands"
    separator=', '
done
printf ']\n'
