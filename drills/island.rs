//! A place of its own for drills with disks and networks: a process with private mounts, disks in memory, and a brake for them.
//!
//! A drill that mounts something runs in a child of the test program that has a mount namespace of its own (`unshare`). So the kernel itself
//! tidies up, also after a panic, Ctrl-C or SIGKILL: with the last process of the namespace its mounts go, with the mounts their loop
//! devices (they clear themselves), with those the memory that they stood on. What is left after a kill is an empty cgroup, which the next
//! drill removes.
//!
//! A disk here is two loop devices deep: an image in memory, a file system on it, in that an image, and on that the file system that the
//! server sees. The brake is on the lower device: the block layer holds throttled requests back before they are counted, so a throttled
//! device looks well in its own statistics, and only what stands on it shows the wait.

use crate::ground::not_possible_here;
use crate::support::Folder;
use crate::sys;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testing::{Lack, needs};

/// Set in the child.
const INSIDE: &str = "PGFATHOM_DRILL_INSIDE";
/// The controller that can slow a device down for some processes: cgroup v1.
pub(crate) const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// Names of our groups begin with this; the rest is our process' number.
pub(crate) const GROUP: &str = "pgfathom-drill-";
/// Memory for all disks of a drill. It is taken as it is written.
const MEMORY: &str = "size=1200m,mode=755";
/// How long a server's last processes may take to leave our group.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// What of the machine a drill must have for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Mounts,
    MountsAndNetwork,
}

impl Own {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Own::Mounts => &["--mount"],
            Own::MountsAndNetwork => &["--mount", "--net"],
        }
    }

    fn needs(self) -> &'static [Need] {
        match self {
            Own::Mounts => &[needs::loop_devices],
            Own::MountsAndNetwork => &[needs::networks],
        }
    }
}

/// Something that a drill cannot do without.
pub(crate) type Need = fn() -> Result<(), Lack>;

/// Runs a drill in a process of its own. The test calls this and nothing else: the child comes here again, and does the work. A drill is
/// left out only when one of its needs is lacking, which is asked before; every error of the drill itself is a failure.
#[track_caller]
pub(crate) fn alone(
    own: Own,
    needs: &[Need],
    rules: &[&str],
    drill: impl FnOnce(&Island) -> Result<(), String>,
) {
    if std::env::var_os(INSIDE).is_some() {
        let done = Island::new(own).and_then(|island| drill(&island));
        return done.unwrap_or_else(|why| panic!("the drill of {rules:?} could not be made: {why}"));
    }
    if let Err(lack) = own.needs().iter().chain(needs).try_for_each(|need| need()) {
        return not_possible_here(rules, &lack);
    }
    // libtest names a test's thread after the test.
    let name = thread::current().name().expect("a test's thread has a name").to_string();
    let mut command = Command::new("unshare");
    command.args(own.flags()).arg("--").arg(std::env::current_exe().expect("we were started from a file"));
    command.args(["--exact", &name, "--include-ignored", "--nocapture", "--test-threads", "1"]);
    command.env(INSIDE, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::end_with_us(&mut command);
    let mut child = command.spawn().expect("unshare was there a moment ago");
    let mut stdout = child.stdout.take().expect("it is a pipe");
    let telling = thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    for line in BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok) {
        eprintln!("{line}");
    }
    let status = child.wait().expect("it is our child");
    let told = telling.join().expect("it only reads");
    assert!(status.success(), "{name} failed in a process of its own: {told}");
    assert!(told.contains("1 passed"), "{name} was not run in a process of its own: {told}");
}

/// Runs a program; its words are the error.
pub(crate) fn run(program: &str, arguments: &[&str], paths: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).args(paths).stdin(Stdio::null()).env("LC_ALL", "C");
    // Also in a user's PATH without the folders of administrators.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    match output.status.success() {
        true => Ok(words(&output.stdout)),
        false => Err(format!("{program} {}: {}", arguments.join(" "), words(&output.stderr))),
    }
}

/// Memory as a place for disks, in a process with mounts of its own.
pub(crate) struct Island {
    memory: Memory,
}

/// A file system in memory, on a folder of its own.
struct Memory {
    folder: Folder,
}

impl Drop for Memory {
    /// The folder can be removed once nothing is mounted there.
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy"], &[&self.folder.path().to_string_lossy()]);
    }
}

impl Island {
    pub(crate) fn new(own: Own) -> Result<Island, String> {
        let memory = Memory { folder: Folder::new() };
        let path = memory.folder.path().to_string_lossy().into_owned();
        run("mount", &["-t", "tmpfs", "-o", MEMORY, "pgfathom"], &[&path])?;
        if own == Own::MountsAndNetwork {
            // What /sys shows of the network is that of the process that mounted it.
            run("mount", &["-t", "sysfs", "sysfs"], &["/sys"])?;
            run("ip", &["link", "set", "lo", "up"], &[])?;
        }
        Ok(Island { memory })
    }

    /// A folder on no disk at all.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.memory.folder.path().join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        open_to_all(&path)?;
        Ok(path)
    }

    /// An ext4 in a loop device of so many MiB, mounted with these options.
    pub(crate) fn file_system(
        &self,
        name: &str,
        mib: u64,
        making: &[&str],
        options: &str,
    ) -> Result<PathBuf, String> {
        let image = self.memory.folder.path().join(format!("{name}.img"));
        let mount = self.folder(name)?;
        let file = File::create(&image).map_err(|error| format!("{}: {error}", image.display()))?;
        file.set_len(mib * MIB).map_err(|error| format!("{}: {error}", image.display()))?;
        make(&image, making, options, &mount)?;
        Ok(mount)
    }

    /// A disk that can be braked.
    pub(crate) fn disk(&self, name: &str, mib: u64) -> Result<Disk, String> {
        // Room for the lower file system's own books.
        let plain = ["-O", "^has_journal"];
        let below = self.file_system(&format!("{name}-below"), mib + mib / 8 + 16, &plain, "")?;
        let mount = self.folder(name)?;
        let image = below.join("disk.img");
        let file = File::create(&image).map_err(|error| format!("{}: {error}", image.display()))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, mib * MIB)
            .map_err(|error| format!("{}: {error}", image.display()))?;
        make(&image, &[], "", &mount)?;
        // Past the lower file system's cache: what waits there would be written by the kernel, for whom there is no brake.
        run("losetup", &["--direct-io=on"], &[&format!("/dev/{}", device(&mount)?)])?;
        let number = number(&below)?;
        Ok(Disk { device: device(&mount)?, mount, number })
    }
}

/// Makes a file system in an image and mounts it. Loop devices that `mount` makes clear themselves when they are unmounted.
fn make(image: &Path, making: &[&str], options: &str, mount: &Path) -> Result<(), String> {
    let (image_path, mount_path) =
        (image.to_string_lossy().into_owned(), mount.to_string_lossy().into_owned());
    let making: Vec<&str> =
        ["-q", "-F", "-m", "0", "-E", "nodiscard"].iter().chain(making).copied().collect();
    run("mkfs.ext4", &making, &[&image_path])?;
    let options = if options.is_empty() { "loop".to_string() } else { format!("loop,{options}") };
    run("mount", &["-o", &options], &[&image_path, &mount_path])?;
    open_to_all(mount)?;
    // A server's folder must be empty.
    let _ = fs::remove_dir(mount.join("lost+found"));
    Ok(())
}

fn open_to_all(path: &Path) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).map_err(|error| error.to_string())
}

/// `7:3`: the device below a mount.
fn number(mount: &Path) -> Result<String, String> {
    let device = fs::metadata(mount).map_err(|error| error.to_string())?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// `loop3`.
pub(crate) fn device(mount: &Path) -> Result<String, String> {
    let link = format!("/sys/dev/block/{}", number(mount)?);
    let target = fs::read_link(&link).map_err(|error| format!("{link}: {error}"))?;
    Ok(target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// A disk that can be slow.
pub(crate) struct Disk {
    pub(crate) mount: PathBuf,
    /// The upper loop device, which the server's files are on.
    pub(crate) device: String,
    /// The lower one.
    number: String,
}

/// What a disk may do at most, for the processes in a group.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    WritesPerS(u64),
    WriteBytesPerS(u64),
}

/// A group of processes for whom disks are slow.
pub(crate) struct Brake {
    group: PathBuf,
}

impl Brake {
    pub(crate) fn new() -> Result<Brake, String> {
        if !Path::new(BLKIO).join("blkio.throttle.write_iops_device").exists() {
            return Err(format!("{BLKIO} is not there: no process can be slowed down on a disk (cgroup v1)"));
        }
        sweep(Path::new(BLKIO));
        let group = Path::new(BLKIO).join(format!("{GROUP}{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        Ok(Brake { group })
    }

    /// From now on a process and what it starts are slow where a disk is.
    pub(crate) fn hold(&self, pids: impl IntoIterator<Item = u32>) -> Result<(), String> {
        // A process that has ended meanwhile is no problem, one that cannot be moved is: then its limit would do nothing.
        let missed = pids.into_iter().filter(|pid| {
            let moved = fs::write(self.group.join("cgroup.procs"), pid.to_string());
            moved.is_err() && Path::new(&format!("/proc/{pid}")).exists()
        });
        match missed.count() {
            0 => Ok(()),
            missed => Err(format!("{missed} processes cannot be moved into {}", self.group.display())),
        }
    }

    /// Slows a disk down, or lets it be itself again.
    pub(crate) fn set(&self, disk: &Disk, limit: Option<Limit>) -> Result<(), String> {
        let (writes, bytes) = match limit {
            None => (0, 0),
            Some(Limit::WritesPerS(writes)) => (writes, 0),
            Some(Limit::WriteBytesPerS(bytes)) => (0, bytes),
        };
        for (what, value) in [("iops", writes), ("bps", bytes)] {
            let file = self.group.join(format!("blkio.throttle.write_{what}_device"));
            fs::write(&file, format!("{} {value}", disk.number))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        let begun = Instant::now();
        while fs::remove_dir(&self.group).is_err() && begun.elapsed() < LEAVE_TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes the groups of drills that were killed.
pub(crate) fn sweep(controller: &Path) {
    for entry in fs::read_dir(controller).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(GROUP) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            // A group that still has processes refuses.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
