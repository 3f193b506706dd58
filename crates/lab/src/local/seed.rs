//! Runs `initdb`, or copies its earlier result.
//!
//! `initdb` takes three quarters of a second of CPU, and the test suites need some hundreds of clusters. If
//! `PGFATHOM_INITDB_SEEDS` names a folder, results of initdb are kept there, one seed per program and arguments, and the next cluster is a copy
//! with a new system identifier, as from initdb. Without that variable nothing is kept or copied.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use connect::os_user::OsUser;

use super::LocalError;
use super::process;

/// The folder of the seeds.
const SEEDS: &str = "PGFATHOM_INITDB_SEEDS";
/// The first WAL segment of a new cluster.
const FIRST_SEGMENT: &str = "pg_wal/000000010000000000000001";
/// The position of the system identifier in a segment's first page (`XLogLongPageHeaderData.xlp_sysid`, access/xlog_internal.h). WAL pages have no checksum of
/// their header.
const SEGMENT_IDENTIFIER_AT: u64 = 24;
/// Bytes of `pg_control` that are searched for its checksum (`PG_CONTROL_MAX_SAFE_SIZE`, catalog/pg_control.h).
const CONTROL_BYTES_MAX: usize = 512;

/// Runs `command`, which is an initdb into `data_dir`, or copies its earlier result.
///
/// Files are copied and written as `user`, whom the folders belong to: what that user puts in their place while that goes on, a link for example, leads to
/// nothing that the user may not reach.
pub(crate) fn initdb(command: Command, data_dir: &Path, user: Option<&OsUser>) -> Result<(), LocalError> {
    match std::env::var_os(SEEDS) {
        Some(seeds) => initdb_by_seed(&PathBuf::from(seeds), command, data_dir, user),
        None => process::run_to_end(command, "initdb"),
    }
}

fn initdb_by_seed(
    seeds: &Path,
    command: Command,
    data_dir: &Path,
    user: Option<&OsUser>,
) -> Result<(), LocalError> {
    let seed = seeds.join(name_of(&command, data_dir));
    let was_there = data_dir.exists();
    if seed.is_dir() {
        let identify = || process::with_files_of(user, || identify(data_dir, fresh_identifier()));
        if copy(&seed, data_dir, user).and_then(|()| identify()).is_ok() {
            return Ok(());
        }
        // initdb has the best message for whatever went wrong.
        process::with_files_of(user, || empty(data_dir, was_there));
    }
    process::run_to_end(command, "initdb")?;
    keep(data_dir, &seed, user);
    Ok(())
}

/// One seed per program and arguments, without the data directory.
fn name_of(command: &Command, data_dir: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    command.get_program().hash(&mut hasher);
    let arguments: Vec<&OsStr> =
        command.get_args().filter(|argument| *argument != data_dir.as_os_str()).collect();
    arguments.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Keeps the result of initdb, if possible: a missing seed only costs time.
fn keep(data_dir: &Path, seed: &Path, user: Option<&OsUser>) {
    // Several processes, and several threads of one, may do this at once: each makes a folder of its own, and the first result stays.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let attempt = COUNT.fetch_add(1, Ordering::Relaxed);
    let begun = seed.with_extension(format!("{}-{attempt}", std::process::id()));
    let given = || {
        fs::create_dir(&begun)?;
        user.map_or(Ok(()), |user| process::give(&begun, user).map_err(io::Error::other))
    };
    if given().and_then(|()| copy(data_dir, &begun, user)).is_err() || fs::rename(&begun, seed).is_err() {
        let _ = fs::remove_dir_all(&begun);
    }
}

fn empty(data_dir: &Path, was_there: bool) {
    if !was_there {
        let _ = fs::remove_dir_all(data_dir);
        return;
    }
    for entry in fs::read_dir(data_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

/// Copies a folder with owners, modes and times.
fn copy(from: &Path, to: &Path, user: Option<&OsUser>) -> io::Result<()> {
    let mut command = process::command(Path::new("cp"), user, Path::new("/"));
    command.args(["-a", "--reflink=auto", "-T"]).arg(from).arg(to);
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if ended.success() { Ok(()) } else { Err(io::Error::other("cp failed")) }
}

/// An identifier as `BootStrapXLOG` (access/transam/xlog.c) would make it: the time, and a part that differs within one microsecond.
fn fresh_identifier() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let apart = u64::from(std::process::id()) ^ (COUNT.fetch_add(1, Ordering::Relaxed) << 6);
    (now.as_secs() << 32) | (u64::from(now.subsec_micros()) << 12) | (apart & 0xfff)
}

/// Sets a new system identifier in a cluster that has never run: in its control file and on the first page of its WAL.
fn identify(data_dir: &Path, identifier: u64) -> io::Result<()> {
    let path = data_dir.join("global/pg_control");
    let mut control = Vec::new();
    File::open(&path)?.read_to_end(&mut control)?;
    let end = checksum_at(&control)
        .ok_or_else(|| io::Error::other("the control file has no checksum that fits"))?;
    control[..8].copy_from_slice(&identifier.to_le_bytes());
    let sum = crc32c(&control[..end]);
    control[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    File::options().write(true).open(&path)?.write_all(&control)?;
    let mut segment = File::options().write(true).open(data_dir.join(FIRST_SEGMENT))?;
    segment.seek(SeekFrom::Start(SEGMENT_IDENTIFIER_AT))?;
    segment.write_all(&identifier.to_le_bytes())
}

/// The position of the checksum in a control file: after the data that it covers, whose length differs by version.
fn checksum_at(control: &[u8]) -> Option<usize> {
    let mut sum = !0;
    for at in 0..control.len().min(CONTROL_BYTES_MAX).checked_sub(4)? {
        let stored = u32::from_le_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]]);
        if at >= 8 && stored == !sum {
            return Some(at);
        }
        sum = step(sum, control[at]);
    }
    None
}

/// CRC-32C (Castagnoli), as PostgreSQL's `pg_crc32c` (port/pg_crc32c.h).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| step(sum, *byte))
}

fn step(sum: u32, byte: u8) -> u32 {
    (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;
    use crate::local::{Installation, installations};

    /// The system identifier that a single-user server reports for these files: it reads the control file and the WAL for that.
    fn identifier(installation: &Installation, user: Option<&OsUser>, data_dir: &Path) -> String {
        let mut command = process::command(&installation.program("postgres"), user, data_dir);
        command.args(["--single", "-D"]).arg(data_dir).arg("postgres");
        let mut server =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let question = b"select 'id=' || system_identifier from pg_control_system()\n";
        server.stdin.take().unwrap().write_all(question).unwrap();
        let output = server.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let begin = text.find("id=").unwrap_or_else(|| panic!("{text}")) + 3;
        text[begin..].chars().take_while(char::is_ascii_digit).collect()
    }

    #[test]
    fn copies_are_sound_clusters_with_names_of_their_own() {
        let user = process::server_user().unwrap();
        for installation in installations() {
            let base = std::env::temp_dir().join(format!(
                "pgfathom-seed-{}-{}",
                std::process::id(),
                installation.version.major
            ));
            fs::DirBuilder::new().mode(0o700).create(&base).unwrap();
            let seeds = base.join("seeds");
            fs::create_dir(&seeds).unwrap();
            if let Some(user) = &user {
                process::give(&base, user).unwrap();
            }
            let make = |name| {
                let data_dir = base.join(name);
                let mut command = process::command(&installation.program("initdb"), user.as_ref(), &base);
                command.arg("-D").arg(&data_dir).args(["-A", "trust", "-E", "UTF8", "--locale=C"]);
                command.args(["-U", "postgres", "--no-sync"]);
                initdb_by_seed(&seeds, command, &data_dir, user.as_ref()).unwrap();
                identifier(&installation, user.as_ref(), &data_dir)
            };
            let made: Vec<String> = ["first", "second", "third"].map(make).into();
            assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2], "{made:?}");
            assert_eq!(fs::read_dir(&seeds).unwrap().count(), 1, "one initdb, two copies");
            // A damaged seed is not used.
            let seed = fs::read_dir(&seeds).unwrap().next().unwrap().unwrap().path();
            fs::write(seed.join("global/pg_control"), b"nothing").unwrap();
            assert!(!made.contains(&make("fourth")));
            fs::remove_dir_all(&base).unwrap();
        }
    }

    /// The server's user puts a link to a file of ours into the folder that we write to.
    #[test]
    fn a_link_in_the_folder_leads_to_no_file_of_ours() {
        let Some(user) = process::server_user().unwrap() else {
            return testing::skip(&testing::Lack::new(
                "root",
                "servers run as our own user, who may write to its files anyway",
            ));
        };
        let base = std::env::temp_dir().join(format!("pgfathom-seed-links-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o711).create(&base).unwrap();
        let (seed, data_dir) = (base.join("seed"), base.join("data"));
        for folder in [&seed, &data_dir] {
            fs::create_dir(folder).unwrap();
            process::give(folder, &user).unwrap();
        }
        let ours = base.join("ours");
        fs::write(&ours, "ours").unwrap();
        fs::set_permissions(&ours, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        // The seed has a link into what only we may read, and so has the folder that is written to.
        process::with_files_of(Some(&user), || {
            fs::create_dir(seed.join("global")).unwrap();
            fs::write(seed.join("global/pg_control"), "theirs").unwrap();
            fs::create_dir(data_dir.join("global")).unwrap();
            std::os::unix::fs::symlink(&ours, data_dir.join("global/pg_control")).unwrap();
        });
        let copied = copy(&seed, &data_dir, Some(&user));
        let identified = process::with_files_of(Some(&user), || identify(&data_dir, 7));
        assert_eq!(fs::read_to_string(&ours).unwrap(), "ours", "{copied:?} {identified:?}");
        let copied = copy(&ours, &data_dir.join("copy"), Some(&user));
        assert!(
            copied.is_err() && !data_dir.join("copy").exists(),
            "what only we may read is not given away"
        );
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_place_of_the_checksum_is_found_where_it_fits_and_only_there() {
        let mut control: Vec<u8> = (0..=255).collect();
        assert_eq!(checksum_at(&control), None);
        let sum = crc32c(&control[..200]);
        control[200..204].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(checksum_at(&control), Some(200));
        control[17] ^= 1;
        assert_eq!(checksum_at(&control), None);
        assert_eq!(checksum_at(&[1, 2]), None);
    }

    #[test]
    fn a_seed_serves_its_program_and_arguments_and_any_folder() {
        let command = |dir: &str, last: &str| {
            let mut command = Command::new("/bin/initdb");
            command.args(["-D", dir, "-U", "postgres", last]);
            command
        };
        let a = name_of(&command("/a", "--no-sync"), Path::new("/a"));
        assert_eq!(a, name_of(&command("/b", "--no-sync"), Path::new("/b")));
        assert_ne!(a, name_of(&command("/a", "--data-checksums"), Path::new("/a")));
    }
}
