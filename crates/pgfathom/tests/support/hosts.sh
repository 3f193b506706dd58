# Hosts for a test, in namespaces of this process: setup.sh COUNT PGFATHOM, in a folder with commands.sh. Nothing outlives it.
set -u
count=$1 program=$2 root=$PWD
umask 022
cp "$program" "$root/pgfathom-command"
ip link set lo up
ip link add br0 type bridge && ip link set br0 up && ip addr add 10.77.0.254/24 dev br0
ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f host-key
cp key.pub authorized && chmod 600 key host-key authorized
cat >ssh-config <<END
Host *
    User root
    IdentityFile $root/key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
END
printf '#!/bin/sh\nexec ssh -F %s/ssh-config "$@"\n' "$root" >own-ssh && chmod 755 own-ssh
mkdir -p data tmp

# until_true SECONDS COMMAND
wait_for() {
    for _ in $(seq 600); do
        if eval "$1" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "waited in vain for: $1" >&2
    exit 99
}

# nsenter keeps the folder of the old mount namespace: the path has to be walked anew.
on() { local n=$1; shift; nsenter -t "${pids[$n]}" -m -n -u sh -c "cd '$root' && exec \"\$@\"" sh "$@"; }

# A disk of its own below data, an empty /tmp, and kernel files of its own network.
host_script='
mount --make-rprivate /
hostname "db$1"
mount -t tmpfs none /run && mkdir -p /run/sshd
mount -t tmpfs -o mode=1777 none "$2/tmp"
mount -o loop "$2/image$1" "$2/data"
mount -t sysfs sysfs /sys
ip link set lo up
: >"$2/up$1"
exec sleep 1000'
pids=()
for n in $(seq "$count"); do
    truncate -s 160M "image$n" && mkfs.ext4 -q -F "image$n"
    unshare --mount --net --uts sh -c "$host_script" host "$n" "$root" &
    pids[$n]=$!
    wait_for "[ -e up$n ]"
    ip link add "v$n" type veth peer name eth0 netns "${pids[$n]}"
    ip link set "v$n" master br0 up
    on "$n" sh -c "ip addr add 10.77.0.$n/24 dev eth0 && ip link set eth0 up"
    cat >"sshd$n" <<END
Port 22
ListenAddress 10.77.0.$n
HostKey $root/host-key
AuthorizedKeysFile $root/authorized
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
SetEnv TMPDIR=$root/tmp
END
    on "$n" /usr/sbin/sshd -D -e -f "$root/sshd$n" 2>"sshd$n.log" &
    wait_for "$root/own-ssh 10.77.0.$n true"
done
printf '10.77.0.[1-%s]\n' "$count" >hosts.txt

# The command in place of the calling shell: `(in_place check ...) & pid=$!`.
in_place() {
    local verb=$1
    shift
    HOME=$root exec "$root/pgfathom-command" "$verb" --ssh-program "$root/own-ssh" "$@"
}
pgfathom() { (in_place "$@"); }

# The login shell of the host's user.
login_shell() {
    sed "s|^\(root:.*:\)[^:]*\$|\1$2|" /etc/passwd >"passwd$1"
    on "$1" mount --bind "$root/passwd$1" /etc/passwd
}

remount() { on "$1" mount -o "remount,$2" "$root/data"; }

# 50 Mbit/s in both directions.
slow_network() {
    tc qdisc add dev "v$1" root tbf rate 50mbit burst 64kb limit 128kb
    on "$1" tc qdisc add dev eth0 root tbf rate 50mbit burst 64kb limit 128kb
}

# 8 MB/s in both directions for every process of the host, by a control group of its own.
group=/sys/fs/cgroup/blkio/pgfathom-hosts-$(basename "$root")
slow_disk() {
    local device way process space
    device=$(on "$1" mountpoint -d "$root/data")
    space=$(readlink "/proc/${pids[$1]}/ns/mnt")
    mkdir "$group"
    for way in read write; do echo "$device 8388608" >"$group/blkio.throttle.${way}_bps_device"; done
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/ns/mnt")" = "$space" ]; then echo "${process#/proc/}" >"$group/cgroup.procs"; fi
    done
}
# An empty group would outlive the test.
free_disk() {
    local process
    while read -r process; do echo "$process" >"${group%/*}/cgroup.procs"; done < <(cat "$group/cgroup.procs")
    rmdir "$group"
}

# Files below the disks and temporary folders of all hosts, and processes of a probe.
leftovers() {
    local left=
    for n in $(seq "$count"); do
        left+=$(on "$n" find data tmp -mindepth 1 -not -name lost+found)
    done
    for file in /proc/[0-9]*/cmdline; do
        case $(tr '\0' ' ' <"$file" 2>/dev/null) in
        *check*--probe* | fio* | *iperf3*) left+=" ${file%/cmdline}" ;;
        esac
    done
    echo "leftovers: ${left:-none}"
}

. ./commands.sh
exit 0
