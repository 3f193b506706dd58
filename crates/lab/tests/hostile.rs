//! What other users of the host put into folders: `up` and `down` neither follow it nor wait for it.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lab::local::{
    Installation, LocalError, Registry, Replication, SyncStandbys, Topology, UpOptions, down, installations,
    servers_in, up,
};
use testing::wait_for;

/// A user that no one has.
const OTHER_USER: u32 = 12_345;

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-hostile-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn registry(&self) -> Registry {
        Registry::at(&self.0.join("registry"))
    }

    fn options(&self, dir: &Path) -> UpOptions {
        UpOptions {
            settings: vec![("shared_buffers".into(), "16MB".into())],
            initdb: vec!["--no-sync".into()],
            registry: self.registry(),
            ..UpOptions::new(dir, installations()[0].clone())
        }
    }

    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A folder as `up` marks it, with a socket folder of its own.
    fn marked(&self, name: &str) -> PathBuf {
        let dir = self.folder(name, 0o700);
        let sockets = self.folder("sockets", 0o755);
        let text = format!("pgfathom cluster 1\npid 1\nsocket_dir {}\n", sockets.display());
        fs::write(dir.join(".pgfathom-cluster"), text).unwrap();
        dir
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in self.registry().clusters() {
            let _ = down(&dir, &self.registry());
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Who made the folder first could put links into it while the cluster is being made.
#[test]
fn up_takes_no_folder_that_others_can_change() {
    let place = Place::new();
    let victim = place.folder("victim", 0o755);
    let owner = fs::metadata(&victim).unwrap().uid();
    symlink(&victim, place.0.join("link")).unwrap();
    let mut cases = vec![
        (place.0.join("link"), "it is a symbolic link"),
        (place.folder("open", 0o777), "every user may write into it"),
    ];
    if is_root() {
        let foreign = place.folder("foreign", 0o755);
        chown(&foreign, Some(OTHER_USER), None).unwrap();
        cases.push((foreign, "it belongs to user 12345"));
        cases.push((place.folder("shared", 0o777).join("c"), "every user may rename what is in"));
    }
    for (dir, problem) in cases {
        let error = up(&place.options(&dir)).unwrap_err();
        assert!(matches!(error, LocalError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains(problem) && error.hint().is_some(), "{error}");
    }
    assert_eq!(fs::metadata(&victim).unwrap().uid(), owner);
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    assert_eq!(fs::read_dir(place.0.join("open")).unwrap().count(), 0);
    // One that only its group could write into becomes private.
    let group = place.folder("group", 0o775);
    up(&place.options(&group)).unwrap();
    assert_eq!(fs::metadata(&group).unwrap().mode() & 0o777, 0o700);
    down(&group, &place.registry()).unwrap();
    assert!(!group.exists());
}

/// The server's user owns the cluster's folder while `up` works in it.
#[test]
fn a_link_in_the_place_of_a_node_is_not_followed() {
    let place = Place::new();
    let (dir, victim) = (place.0.join("c"), place.folder("victim", 0o700));
    let before = fs::metadata(&victim).unwrap();
    let (marker, node) = (dir.join(".pgfathom-cluster"), dir.join("s1"));
    let planted = std::thread::spawn({
        let victim = victim.clone();
        move || {
            wait_for("the marker", || marker.exists());
            symlink(victim, node).unwrap();
        }
    });
    let topology =
        Topology::Replicated(Replication { standbys: 1, sync: SyncStandbys::default_for(1), commit: None });
    let error = up(&UpOptions { topology, ..place.options(&dir) }).unwrap_err();
    planted.join().unwrap();
    assert!(error.to_string().contains("s1"), "{error}");
    let after = fs::metadata(&victim).unwrap();
    assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

/// A program called like a server, and what it does when it is stopped.
fn server_in(data_dir: &Path, program: &Path, at_stop: &str) -> testing::Running {
    let ready = program.with_extension("ready");
    let _ = fs::remove_file(&ready);
    let script = format!("trap '{at_stop}; exit' QUIT; : >{}; while :; do sleep 0.05; done", ready.display());
    let mut command = Command::new(program);
    let command =
        command.arg("-c").arg(script).current_dir(data_dir).stdin(Stdio::null()).stdout(Stdio::null());
    // Another test that starts a program at that moment holds the copy open for writing, until its own exec.
    const TEXT_FILE_BUSY: i32 = 26;
    let started = loop {
        match command.spawn() {
            Err(error) if error.raw_os_error() == Some(TEXT_FILE_BUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            started => break started,
        }
    };
    let running = testing::Running::new(started.unwrap());
    wait_for("the server", || ready.exists() && !servers_in(data_dir).is_empty());
    running
}

fn shell_called_postgres(place: &Place) -> PathBuf {
    let program = place.folder("bin", 0o755).join("postgres");
    fs::copy("/bin/bash", &program).unwrap();
    program
}

#[test]
fn down_removes_the_folder_that_it_began_with() {
    let place = Place::new();
    let dir = place.marked("c");
    let victim = place.folder("victim", 0o700);
    for folder in [dir.join("data"), victim.join("data")] {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("precious"), "").unwrap();
    }
    let (old, program) = (place.0.join("old"), shell_called_postgres(&place));
    let swap = format!("mv {0} {1}; ln -s {2} {0}", dir.display(), old.display(), victim.display());
    let _server = server_in(&dir.join("data"), &program, &swap);
    // The link in its place is no folder that could be removed.
    let ended = down(&dir, &place.registry());
    assert!(victim.join("data/precious").exists());
    assert!(old.is_dir() && !old.join("data").exists(), "the cluster's own files are gone: {ended:?}");
}

/// Only processes of the folder's owner are its servers, and a link to a folder has none.
#[test]
fn down_ends_no_process_of_another_user() {
    let place = Place::new();
    let program = shell_called_postgres(&place);
    let victim = place.folder("victim", 0o755);
    let mut server = server_in(&victim, &program, "true");
    let linked = place.marked("linked");
    symlink(&victim, linked.join("data")).unwrap();
    let error = down(&linked, &place.registry()).unwrap_err();
    assert!(error.to_string().contains("it is no folder"), "{error}");
    assert!(servers_in(&linked.join("data")).is_empty() && linked.join("data").exists());
    if is_root() {
        use std::os::unix::process::CommandExt;
        let dir = place.marked("other");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.join("data")).unwrap();
        let mut command = Command::new(&program);
        command.args(["-c", "while :; do sleep 0.05; done"]).current_dir(dir.join("data")).uid(OTHER_USER);
        let mut theirs = testing::Running::new(command.stdin(Stdio::null()).spawn().unwrap());
        let cwd = format!("/proc/{}/cwd", theirs.id());
        wait_for("the process", || fs::read_link(&cwd).is_ok_and(|cwd| cwd.ends_with("data")));
        assert!(servers_in(&dir.join("data")).is_empty());
        assert_eq!(down(&dir, &place.registry()).unwrap().stopped, 0);
        assert!(theirs.try_wait().unwrap().is_none(), "it lives");
    }
    assert!(server.try_wait().unwrap().is_none(), "it lives");
}

/// In a folder for temporary files every user can put something under any name.
#[test]
fn down_waits_for_no_pipe_and_removes_no_file_of_others() {
    let place = Place::new();
    let dir = place.marked("c");
    let (sockets, data) = (place.0.join("sockets"), dir.join("data"));
    fs::create_dir(&data).unwrap();
    pipe(&sockets.join("x"));
    pipe(&sockets.join(".s.PGSQL.1.lock"));
    symlink("/dev/zero", sockets.join(".s.PGSQL.2.lock")).unwrap();
    symlink("/dev/zero", data.join("postmaster.pid")).unwrap();
    let lock = format!("1\n{}\n", data.display());
    fs::write(sockets.join("other"), "theirs").unwrap();
    fs::write(sockets.join("other.lock"), &lock).unwrap();
    fs::write(sockets.join(".s.PGSQL.3"), "no socket").unwrap();
    fs::write(sockets.join(".s.PGSQL.3.lock"), &lock).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(sockets.join(".s.PGSQL.4")).unwrap();
    fs::write(sockets.join(".s.PGSQL.4.lock"), &lock).unwrap();
    if is_root() {
        let theirs = sockets.join(".s.PGSQL.5.lock");
        fs::write(&theirs, &lock).unwrap();
        chown(&theirs, Some(OTHER_USER), None).unwrap();
    }
    down(&dir, &place.registry()).unwrap();
    assert!(!dir.exists());
    let there = |name: &str| fs::symlink_metadata(sockets.join(name)).is_ok();
    for stays in ["x", ".s.PGSQL.1.lock", ".s.PGSQL.2.lock", "other", "other.lock", ".s.PGSQL.3"] {
        assert!(there(stays), "{stays}");
    }
    assert_eq!(there(".s.PGSQL.5.lock"), is_root());
    assert!(!there(".s.PGSQL.3.lock") && !there(".s.PGSQL.4") && !there(".s.PGSQL.4.lock"));

    let piped = place.folder("piped", 0o700);
    pipe(&piped.join(".pgfathom-cluster"));
    assert!(matches!(down(&piped, &place.registry()), Err(LocalError::NotOurs { .. })));
}

/// Root runs the programs that a file names only if no one else can put others in their place.
#[test]
fn programs_below_a_folder_of_others_are_not_run() {
    let place = Place::new();
    if !is_root() {
        // Programs run with the rights of the user who named them.
        let bin_dir = &installations()[0].bin_dir;
        assert_eq!(&Installation::recorded(bin_dir).unwrap().bin_dir, bin_dir);
        return;
    }
    let bin = place.folder("theirs", 0o755).join("bin");
    symlink(&installations()[0].bin_dir, &bin).unwrap();
    let found = Installation::recorded(&bin).unwrap();
    assert!(!found.bin_dir.starts_with(&place.0), "the path that was checked is the one that is used");
    fs::remove_file(&bin).unwrap();
    fs::create_dir(&bin).unwrap();
    for name in ["postgres", "initdb"] {
        fs::write(bin.join(name), "#!/bin/sh\necho postgres (PostgreSQL) 15.1\n").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A script that was just written may be busy: a thread beside this one may have forked while it was open.
    let refusal = Installation::recorded(&bin).err().filter(|why| why.contains("could be changed"));
    assert_eq!(refusal, None);
    chown(place.0.join("theirs"), Some(OTHER_USER), None).unwrap();
    let why = Installation::recorded(&bin).unwrap_err();
    assert!(why.contains("could be changed by others than root"), "{why}");
}
