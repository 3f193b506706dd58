//! What some tests need of the machine. Each probe tries the thing itself with programs of the system (`mount`, `unshare`, `ip`), never with
//! code of ours, and changes nothing: what it mounts or makes is in namespaces of its own, and gone when it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Lack;

/// A program in the `PATH`, or in the folders of administrators.
///
/// # Errors
/// What is lacking.
pub fn program(name: &'static str) -> Result<PathBuf, Lack> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Lack::new(name, "no such program on this machine"))
}

/// A client of PostgreSQL: in the `PATH`, or where distributions put the servers.
///
/// # Errors
/// What is lacking.
pub fn client_program(name: &'static str) -> Result<PathBuf, Lack> {
    let installed =
        ["/usr/lib/postgresql", "/usr"].into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let beside_servers =
        installed.map(|folder| folder.path().join("bin").join(name)).find(|path| path.is_file());
    beside_servers.map_or_else(|| program(name), Ok)
}

/// An io_uring with what a worker wants of it.
///
/// # Errors
/// What is lacking.
pub fn io_uring() -> Result<(), Lack> {
    use io_uring::{IoUring, cqueue, squeue};
    let mut ring = IoUring::<squeue::Entry, cqueue::Entry>::builder();
    ring.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    ring.build(2).map(drop).map_err(|error| Lack::new("io-uring", error))
}

/// The right to mount a file system in memory.
///
/// # Errors
/// What is lacking.
pub fn mounts() -> Result<(), Lack> {
    in_own("mounts", &["--mount"], "mount -t tmpfs -o size=1m none \"$1\"")
}

/// Loop devices with ext4 on them.
///
/// # Errors
/// What is lacking.
pub fn loop_devices() -> Result<(), Lack> {
    mounts()?;
    let script =
        "mount -t tmpfs -o size=16m none \"$1\" && mkdir \"$1/disk\" && truncate -s 8M \"$1/image\" &&
        mkfs.ext4 -q -F \"$1/image\" && mount -o loop \"$1/image\" \"$1/disk\"";
    in_own("loop-devices", &["--mount"], script)
}

/// A network namespace, with cards, bridges and queues in it.
///
/// # Errors
/// What is lacking.
pub fn networks() -> Result<(), Lack> {
    let script = "ip link set lo up && ip link add one type veth peer name other &&
        ip link add bridge type bridge && tc qdisc add dev one root tbf rate 50mbit burst 20kb limit 60kb &&
        mount -t sysfs sysfs /sys";
    in_own("networks", &["--mount", "--net"], script)
}

/// The controller that slows some processes down on a disk: cgroup v1's blkio.
///
/// # Errors
/// What is lacking.
pub fn slow_disks() -> Result<(), Lack> {
    const NEED: &str = "slow-disks";
    let root = Path::new("/sys/fs/cgroup/blkio");
    let switch = "blkio.throttle.write_iops_device";
    if !root.join(switch).exists() {
        let why = format!(
            "no {}: no process can be slowed down on a disk (cgroup v1)",
            root.join(switch).display()
        );
        return Err(Lack::new(NEED, why));
    }
    let group = root.join(format!("pgfathom-probe-{}-{:?}", std::process::id(), std::thread::current().id()));
    let made = std::fs::create_dir(&group);
    made.and_then(|()| std::fs::remove_dir(&group))
        .map_err(|error| Lack::new(NEED, format!("{}: {error}", group.display())))
}

/// The programs of an engine that `scripts/engines` has built into the folder that `PGFATHOM_ENGINES` names.
///
/// # Errors
/// What is lacking.
pub fn engine(need: &'static str, name: &str) -> Result<PathBuf, Lack> {
    let prefix = std::env::var_os("PGFATHOM_ENGINES").filter(|value| !value.is_empty());
    let prefix =
        prefix.ok_or_else(|| Lack::new(need, "PGFATHOM_ENGINES names no folder of scripts/engines"))?;
    let programs = Path::new(&prefix).join(name).join("bin");
    match programs.join("postgres").is_file() {
        true => Ok(programs),
        false => Err(Lack::new(need, format!("{} has no server", programs.display()))),
    }
}

/// So many processors.
///
/// # Errors
/// What is lacking.
pub fn processors(count: usize) -> Result<(), Lack> {
    let found = std::thread::available_parallelism().map_or(1, usize::from);
    if found >= count { Ok(()) } else { Err(Lack::new("processors", format!("{found}, not {count}"))) }
}

/// Runs a shell script in namespaces of its own; `$1` is an empty folder.
fn in_own(need: &'static str, namespaces: &[&str], script: &str) -> Result<(), Lack> {
    let lack = |why: String| Lack::new(need, why);
    let folder = std::env::temp_dir().join(format!(
        "pgfathom-probe-{}-{need}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder).map_err(|error| lack(format!("{}: {error}", folder.display())))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["--", "sh", "-c", script, "sh"])
        .arg(&folder)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let _ = std::fs::remove_dir(&folder);
    let output = output.map_err(|error| lack(format!("unshare: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(lack(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}
