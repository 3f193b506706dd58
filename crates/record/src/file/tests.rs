use super::*;
use crate::held::Held;
use std::os::unix::fs::symlink;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-file-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

#[test]
fn what_is_made_is_its_owners_alone() {
    let folder = Folder::new("private");
    let inner = folder.0.join("run");
    create_folder(&inner).expect("made");
    assert_eq!(mode(&inner), 0o700);
    assert_eq!(create_folder(&inner).expect_err("there").kind(), ErrorKind::AlreadyExists);
    create(&inner.join("a")).expect("made");
    replace(&inner.join("b"), b"1").expect("written");
    fs::write(inner.join("c"), "old").expect("written");
    fs::set_permissions(inner.join("c"), Permissions::from_mode(0o644)).expect("ours");
    replace(&inner.join("c"), b"new").expect("written");
    for name in ["a", "b", "c"] {
        assert_eq!(mode(&inner.join(name)), 0o600, "{name}");
    }
    assert_eq!(fs::read_dir(&inner).expect("readable").count(), 3, "no temporary file is left");
    fs::set_permissions(&inner, Permissions::from_mode(0o755)).expect("ours");
    own_folder(&inner).expect("ours");
    assert_eq!(mode(&inner), 0o700);
    fs::set_permissions(&inner, Permissions::from_mode(0o1777)).expect("ours");
    Held::open(&inner).expect("ours").make_private();
    assert_eq!(mode(&inner), 0o1777, "a shared folder is left alone");
}

#[test]
fn links_are_neither_followed_nor_written_through() {
    let folder = Folder::new("links");
    let (secret, link) = (folder.0.join("secret"), folder.0.join("link"));
    fs::write(&secret, "secret").expect("written");
    symlink(&secret, &link).expect("linked");
    assert!(open(&link).expect_err("a link").to_string().contains("symbolic link"));
    assert!(create(&link).is_err() && own_folder(&link).is_err());
    assert!(append(&link).is_err() && overwrite(&link, b"x").is_err());
    append(&folder.0.join("log")).expect("made").write_all(b"a").expect("written");
    append(&folder.0.join("log")).expect("there").write_all(b"b").expect("written");
    assert_eq!(fs::read(folder.0.join("log")).expect("there"), b"ab");
    overwrite(&folder.0.join("log"), b"c").expect("written");
    assert_eq!(fs::read(folder.0.join("log")).expect("there"), b"c");
    assert_eq!(mode(&folder.0.join("log")), 0o600);
    fs::remove_file(folder.0.join("log")).expect("ours");
    replace(&link, b"page").expect("written");
    assert_eq!(fs::read(&secret).expect("there"), b"secret");
    assert_eq!(fs::read(&link).expect("there"), b"page");
    symlink(&folder.0, folder.0.join("stacks")).expect("linked");
    assert_eq!(list(&folder.0.join("stacks")), Vec::<PathBuf>::new());
    assert_eq!(list(&folder.0), [link, secret]);
}

#[test]
fn pipes_devices_and_sockets_are_refused_at_once() {
    let folder = Folder::new("pipes");
    let pipe = folder.0.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("made");
    let socket = folder.0.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    for path in [pipe.as_path(), &socket, Path::new("/dev/zero"), &folder.0] {
        assert!(open(path).is_err() && read(path, 10).is_err(), "{}", path.display());
        assert!(append(path).is_err() && overwrite(path, b"x").is_err(), "{}", path.display());
    }
    // Also one that another process reads.
    let reader = rustix::fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("a reader");
    assert!(append(&pipe).is_err() && overwrite(&pipe, b"x").is_err());
    drop(reader);
}

#[test]
fn files_and_lines_have_a_largest_size() {
    let folder = Folder::new("sizes");
    let path = folder.0.join("file");
    fs::write(&path, "12345").expect("written");
    assert_eq!(read(&path, 5).expect("read"), b"12345");
    assert!(read(&path, 4).expect_err("too large").to_string().contains("larger than"));
    let mut text = vec![b'x'; LINE_BYTES_MAX];
    text.extend(b"\n\nab\n");
    text.extend(vec![b'y'; LINE_BYTES_MAX + 1]);
    text.extend(b"\nend");
    let mut lines = Lines::new(text.as_slice());
    let mut found = vec![];
    while let Some(line) = lines.next_line().expect("memory") {
        found.push((line.offset, line.bytes.len(), line.is_torn, line.is_too_long));
    }
    let max = LINE_BYTES_MAX as u64;
    assert_eq!(
        found,
        [
            (0, LINE_BYTES_MAX, false, false),
            (max + 1, 0, false, false),
            (max + 2, 2, false, false),
            (max + 5, 0, false, true),
            (2 * max + 7, 3, true, false),
        ]
    );
}
