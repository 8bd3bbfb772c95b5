# prepare.sh look MODULES DEBIAN-PACKAGES RPM-PACKAGES   what is not as it should be, as JSON
# prepare.sh apply MODULES                               make it so (packages are Ansible's to install)
PATH=$PATH:/usr/sbin:/sbin
mode=$1 modules=$2
limits='# RDMA registers memory by locking it.
* soft memlock unlimited
* hard memlock unlimited
root soft memlock unlimited
root hard memlock unlimited'
service='[Service]
LimitMEMLOCK=infinity'
list() { # "a", "b"
    out=
    for each in "$@"; do out="$out${out:+, }\"$each\""; done
    printf '[%s]' "$out"
}
todo=
file() { # path, text
    [ "$(cat "$1" 2> /dev/null)" = "$2" ] && return
    todo="$todo $1"
    [ "$mode" = apply ] || return
    mkdir -p "${1%/*}"
    printf '%s\n' "$2" > "$1"
    chmod 644 "$1"
}
file /etc/security/limits.d/90-rdmabench.conf "$limits"
file /etc/modules-load.d/rdmabench.conf "$(printf '%s\n' $modules)"
for module in $modules; do
    [ -e "/sys/module/$module" ] && continue
    todo="$todo modprobe:$module"
    [ "$mode" != apply ] || modprobe "$module" || exit 1
done
if [ -d /run/systemd/system ]; then
    for unit in ssh sshd slurmd; do
        systemctl cat "$unit.service" > /dev/null 2>&1 || continue
        file "/etc/systemd/system/$unit.service.d/90-rdmabench.conf" "$service"
    done
    [ "$mode" != apply ] || systemctl daemon-reload
fi
[ "$mode" = look ] || exit 0
missing=
if command -v dpkg-query > /dev/null; then
    for package in $3; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || missing="$missing $package"
    done
elif command -v rpm > /dev/null; then
    for package in $4; do rpm -q --quiet --whatprovides "$package" || missing="$missing $package"; done
else
    echo "neither dpkg nor rpm: this playbook does not know the node's packages" >&2
    exit 1
fi
printf '{"missing": %s, "todo": %s}\n' "$(list $missing)" "$(list $todo)"
