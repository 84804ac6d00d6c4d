# Booted Debian containers with the package's own systemd, in the namespaces and on the cables of tests/netns/lib.sh. Sourced by
# the tests of this folder, in the root of the repository, with $build, the folder of the build; sources tests/netns/lib.sh and
# nodes.sh. $deb is the newest package there. Node 1 is called a, node 2 b, and so on.
#
#   base_root DEB [MORE]  a minimal Debian with what DEB depends on, and packages MORE (commas between them); made once from where apt
#                        gets its own, kept in $RINGD_CACHE (/var/cache/ringd-tests)
#   boot NODE...         starts them on overlays of the base root, cables and all, and waits until systemd is done
#   in_node NAME CMD...  runs it there as root, with a deadline ($patience, else 120 s)      as NAME USER CMD...   as somebody
#   root_of NAME         its root as seen from here                  booted NAME           is its systemd up?
#   reboot NODE          and wait until it is up again
#                        $machine_options are more options of nspawn's
#   power_off            all of them, in order; called at exit
#
# The base root is never written to, nothing is registered with the host, and all mounts stay in this process's own mount
# namespace. Every container has a cgroup of its own, as its systemd would manage, and end, whatever else is in it.
# SPDX-License-Identifier: MIT
[ "$(id -u)" != 0 ] || [ -n "${RINGD_OWN_MOUNTS:-}" ] ||
    RINGD_OWN_MOUNTS=1 exec unshare -m --propagation slave sh "$0" "$build"
. tests/netns/lib.sh
. tests/netns/nodes.sh
deb=$(ls -t "$build"/ringd_*.deb 2>/dev/null | head -n 1)
[ -n "$deb" ] || skip "there is no package in $build: make deb makes one"

# The release of this machine: a package is made for that.
suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-bookworm}" || echo bookworm)
cache=${RINGD_CACHE:-/var/cache/ringd-tests}
up= # names of the containers that were started

for tool in systemd-nspawn:systemd-container debootstrap:debootstrap nsenter:util-linux dpkg-deb:dpkg; do
    command -v "${tool%:*}" >/dev/null || skip "${tool%:*} is missing: apt-get install ${tool#*:}"
done

# Where apt has this suite from, as its own configuration says; RINGD_MIRROR names another place.
mirror_of_apt() {
    if [ -n "${RINGD_MIRROR:-}" ]; then
        echo "$RINGD_MIRROR"
    else
        apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
            awk -v suite=$suite '$2 == suite && $3 == "main" { print $1; exit }'
    fi
}
# The proxy of apt is debootstrap's too.
proxy_of_apt() {
    eval "$(apt-config shell _proxy Acquire::http::Proxy)"
    echo "${_proxy:-${http_proxy:-}}"
}

base_root() {
    _packages=$(dpkg-deb -f "$1" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | sort -u | tr '\n' ',')
    _packages=systemd,systemd-sysv,dbus,udev,kmod,iproute2,procps,$_packages${2:+$2,}
    base=$cache/$suite-$(dpkg --print-architecture)-$(printf %s "$_packages" | cksum | command cut -d ' ' -f 1)
    mkdir -p "$cache" || skip "$cache cannot be made: RINGD_CACHE names another folder"
    exec 8>"$base.lock"
    flock -w 900 8 || fail "somebody else has been making $base for 15 minutes"
    [ -d "$base" ] || {
        rm -rf --one-file-system "$base.new"
        mirror=$(mirror_of_apt)
        [ -n "$mirror" ] || skip "apt knows no place that has Debian $suite: RINGD_MIRROR names one"
        http_proxy=$(proxy_of_apt) timeout 900 debootstrap --variant=minbase --include="${_packages%,}" $suite "$base.new" "$mirror" >"$tmp/debootstrap.log" 2>&1 || {
            _why=$(tail -n 1 "$tmp/debootstrap.log")
            rm -rf --one-file-system "$base.new"
            skip "debootstrap cannot make a Debian from $mirror: $_why"
        }
        rm -rf "$base.new"/var/cache/apt/archives/*.deb "$base.new"/var/lib/apt/lists/*
        : >"$base.new/etc/machine-id" # each container gets one of its own
        mv "$base.new" "$base"
    }
    exec 8>&-
}
root_of() {
    echo "$tmp/$1/root"
}

# Where the host's systemd rules, nspawn asks it for a scope; elsewhere we make the cgroup.
_groups() { # NAME: its cgroups, one a line
    [ -d /run/systemd/system ] && return
    for _h in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ ! -e "$_h/cgroup.procs" ] || echo "$_h/ring$$-$1"
    done
}
_start() { # NAME NODE
    mkdir -p "$tmp/$1/upper" "$tmp/$1/work" "$tmp/$1/root"
    mount -t overlay "ring$$-$1" -o "lowerdir=$base,upperdir=$tmp/$1/upper,workdir=$tmp/$1/work" "$tmp/$1/root" 2>"$tmp/mount.log" ||
        skip "overlays cannot be mounted here: $(tail -n 1 "$tmp/mount.log")"
    tr -d '-' </proc/sys/kernel/random/uuid >"$tmp/$1/root/etc/machine-id"
    echo "$1" >"$tmp/$1/root/etc/hostname"
    printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$1" >"$tmp/$1/root/etc/hosts"
    _groups "$1" >"$tmp/$1/groups"
    up="$up $1"
    _launch "$1" "$2"
}
# The filter of nspawn in Debian 12 knows nothing of Landlock, which stages enter their cells with; a machine has no such filter.
# A shell moves itself into the cgroup and becomes nspawn, so that its id is ours to wait for.
_launch() {
    sh -c '
        while read -r group; do
            mkdir -p "$group" && echo $$ >"$group/cgroup.procs" || exit 1
        done <"$1"
        keep=
        [ ! -s "$1" ] || keep=--keep-unit
        shift
        exec setsid systemd-nspawn $keep "$@"' sh "$tmp/$1/groups" \
        --quiet --boot --directory="$tmp/$1/root" --machine="ring$$-$1" --hostname="$1" --register=no --link-journal=no \
        --resolv-conf=off --timezone=off --network-namespace-path="/run/netns/$(ns_name "$2")" \
        --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
        --capability=CAP_NET_ADMIN,CAP_NET_RAW --console=read-only ${machine_options:-} systemd.show_status=no </dev/null >>"$tmp/$1.console" 2>&1 &
    echo $! >"$tmp/$1.pid"
}
# PID 1 of the container as seen from here; after a reboot it is another.
_leader() {
    read -r _nspawn <"$tmp/$1.pid"
    tr ' ' '\n' <"/proc/$_nspawn/task/$_nspawn/children" 2>/dev/null | grep . | tail -n 1 | grep .
}
in_node() {
    _name=$1
    shift
    _pid1=$(_leader "$_name" 2>/dev/null) || return 1
    timeout $((${patience:-120} * slow)) nsenter -t "$_pid1" -m -u -i -n -p -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "$@"
}
as() {
    _at=$1 _user=$2
    shift 2
    in_node "$_at" runuser -u "$_user" -- "$@"
}
booted() {
    case $(in_node "$1" systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac
}
boot() {
    for _node; do
        _start "$(name_of "$_node")" "$_node"
    done
    for _node; do
        wait_for $((60 * slow)) booted "$(name_of "$_node")" || {
            # A machine that cannot run any container says so at once.
            kill -0 "$(cat "$tmp/$(name_of "$_node").pid")" 2>/dev/null ||
                skip "systemd-nspawn does not run here: $(tail -n 1 "$tmp/$(name_of "$_node").console")"
            fail "$(name_of "$_node") has not booted after 60 s"
        }
    done
}
# Where the cgroup is ours, nspawn leaves it to us to start it again, and says so with its exit status.
reboot() {
    _name=$(name_of "$1")
    read -r _nspawn <"$tmp/$_name.pid"
    _before=$(_leader "$_name")
    in_node "$_name" systemctl reboot
    if [ -s "$tmp/$_name/groups" ]; then
        timeout $((60 * slow)) tail --pid="$_nspawn" -f /dev/null || fail "$_name does not go down for its reboot"
        wait "$_nspawn"
        _status=$?
        [ $_status = 133 ] || fail "$_name went down, not for a reboot (status $_status)"
        _remove_groups "$_name"
        _launch "$_name" "$1"
    fi
    wait_for $((60 * slow)) _another "$_name" "$_before" || fail "$_name does not come back from its reboot"
}
_another() { # NAME PID1: is another up?
    _now=$(_leader "$1") && [ "$_now" != "$2" ] && booted "$1"
}

# SIGTERM to nspawn is a clean end of the container; SIGKILL would leave it running without anybody to end it, so whatever
# is in its cgroup then is ended too: it is ours.
power_off() {
    for _name in $up; do
        kill "$(cat "$tmp/$_name.pid")" 2>/dev/null
    done
    for _name in $up; do
        _pid=$(cat "$tmp/$_name.pid")
        timeout 20 tail --pid="$_pid" -f /dev/null || kill -9 "$_pid" 2>/dev/null
        wait "$_pid" 2>/dev/null
        _remove_groups "$_name"
        umount "$tmp/$_name/root"
        rmdir "/run/systemd/nspawn/propagate/ring$$-$_name" 2>/dev/null # what nspawn itself leaves
    done
    up=
}
_remove_groups() {
    while read -r _group; do
        find "$_group" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r _left; do
            kill -9 "$_left" 2>/dev/null
        done
        wait_for 2 _no_group "$_group" || echo "the cgroup $_group is still there" >&2
    done <"$tmp/$1/groups"
}
_no_group() {
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
    [ ! -d "$1" ]
}
# Whoever reads what we say may go before us: the containers must not stay behind for that.
trap 'trap "" PIPE; power_off; ns_down' EXIT
trap 'exit 141' PIPE
trap 'exit 129' HUP
