# Ships kernel files of this machine to pgfathom, one shipment per line of standard input; ends with it. Reads, never writes.
# A line is a letter, f (every second), s (slow things too) or x (a search of all processes too), and process ids.
LC_ALL=C
export LC_ALL
export PATH="$PATH:/usr/sbin:/sbin"
fast="/proc/stat /proc/meminfo /proc/vmstat /proc/diskstats /proc/pressure/cpu /proc/pressure/io /proc/pressure/memory"
fast="$fast /proc/net/snmp /proc/net/dev /proc/net/softnet_stat"
ship() { head -n 100000 /dev/null "$@" 2>/dev/null </dev/null; echo; }
# What a program prints, for a few seconds at most and all of them together: a dying disk holds smartctl up for minutes. Its lines must not look like ours.
say() {
  read -r now rest </proc/uptime
  name=$1
  shift
  if [ "$((${now%.*} - ${up%.*}))" -lt 6 ] && command -v "$1" >/dev/null && command -v timeout >/dev/null; then
    echo "==> /@/$name <=="
    timeout 3 "$@" 2>/dev/null </dev/null | head -c 200000 | sed 's/^@@/ &/; s/^==>/ &/'
    echo
  fi
}
links() {
  for link in "$@"; do
    if [ -h "$link" ]; then echo "@@link $link $(readlink "$link")"; fi
  done
}
echo
echo "@@hello 1 $(uname -n)"
while read -r what pids; do
  read -r up rest </proc/uptime
  echo "@@tick $up"
  set -- $fast
  for pid in $pids; do
    set -- "$@" "/proc/$pid/stat" "/proc/$pid/io" "/proc/$pid/schedstat" "/proc/$pid/wchan"
  done
  ship "$@"
  case $what in s | x)
    echo "@@slow"
    ship /proc/self/mountinfo /proc/cmdline /proc/cpuinfo /sys/block/*/dev /sys/block/*/size /sys/block/*/queue/scheduler \
      /sys/block/*/queue/nr_requests /sys/block/*/queue/rotational /sys/block/*/queue/write_cache \
      /sys/block/*/queue/read_ahead_kb /sys/block/*/device/model /sys/block/*/device/firmware_rev \
      /sys/block/*/md/level /sys/block/*/md/degraded /sys/block/*/md/sync_action /sys/block/*/md/chunk_size \
      /sys/block/*/dm/name /sys/block/*/loop/backing_file /sys/block/*/*/partition /sys/block/*/*/dev \
      /sys/fs/btrfs/*/label /proc/fs/ext4/*/options /proc/fs/ext4/*/mb_stats
    ship /proc/sys/kernel/osrelease /proc/sys/kernel/version /proc/sys/kernel/tainted /proc/sys/kernel/numa_balancing \
      /proc/sys/kernel/perf_event_paranoid /proc/sys/kernel/sched_autogroup_enabled /proc/sys/kernel/task_delayacct \
      /proc/sys/net/core/netdev_max_backlog /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/tcp_congestion_control \
      /proc/sys/vm/dirty_background_bytes /proc/sys/vm/dirty_background_ratio /proc/sys/vm/dirty_bytes \
      /proc/sys/vm/dirty_ratio /proc/sys/vm/nr_hugepages /proc/sys/vm/overcommit_memory /proc/sys/vm/overcommit_ratio \
      /proc/sys/vm/swappiness /proc/sys/vm/zone_reclaim_mode /sys/kernel/security/lsm \
      /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag \
      /sys/devices/system/clocksource/clocksource0/current_clocksource /sys/devices/system/cpu/online \
      /sys/devices/system/cpu/smt/control /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor \
      /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver /sys/class/dmi/id/bios_vendor /sys/class/dmi/id/bios_version \
      /sys/class/dmi/id/bios_date /sys/class/dmi/id/product_name /sys/module/zfs/version
    ship /sys/class/net/*/mtu /sys/class/net/*/speed /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/xps_cpus \
      /sys/devices/system/edac/mc/mc*/?e_count /sys/devices/system/edac/mc/mc*/*/*e_count \
      /sys/devices/system/edac/mc/mc*/*/dimm_label /sys/devices/system/edac/mc/mc*/*/size \
      /sys/class/hwmon/*/name /sys/class/hwmon/*/fan* /sys/class/hwmon/*/temp* \
      /sys/devices/system/cpu/cpu*/thermal_throttle/*_count /sys/devices/system/node/node*/numastat \
      /proc/spl/kstat/zfs/arcstats
    ship /sys/bus/pci/devices/*/class /sys/bus/pci/devices/*/aer_dev_* /sys/bus/pci/devices/*/*_link_speed \
      /sys/bus/pci/devices/*/*_link_width
    links /sys/block/*/slaves/* /sys/fs/btrfs/*/devices/* /sys/class/net/*/device/driver
    echo "==> /@/df <=="
    df -Pkl 2>/dev/null
    echo
    echo "==> /@/dmesg <=="
    dmesg 2>/dev/null | tail -n 500
    echo
    ;;
  esac
  case $what in x)
    for link in $(find /proc/[0-9]*/fd -lname "anon_inode:?fanotify?" 2>/dev/null); do
      links "$link"
      process=${link%/fd/*}
      ship "$process/comm" "$process/fdinfo/${link##*/}"
    done
    echo "==> /@/programs <=="
    for program in auditctl chronyc smartctl zpool; do command -v "$program"; done
    echo
    say chronyc chronyc -c tracking
    say auditctl-s auditctl -s
    say auditctl-l auditctl -l
    say zpool zpool status -LP
    # Real disks only; one that sleeps is left asleep.
    for disk in /sys/block/*/device; do
      disk=${disk%/device}
      say "smartctl/${disk##*/}" smartctl -j -a -n standby "/dev/${disk##*/}"
    done
    ;;
  esac
  echo "@@end"
done
