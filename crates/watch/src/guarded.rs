//! Files that other users of the host choose: opened and read so that what they put there can neither block us nor take our memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A regular file for reading.
///
/// # Errors
/// The system's, and for whatever else has that name: a pipe would block the process that opens it, a device may have no end.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// The text of a regular file, at most so many bytes of it; what is no UTF-8 is replaced.
///
/// # Errors
/// As for [`open`].
pub(crate) fn text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = vec![];
    open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_so_much_of_them() {
        let dir = std::env::temp_dir().join(format!("pgfathom-guarded-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let file = dir.join("file");
        std::fs::write(&file, "seven b\u{e9}").expect("written");
        assert_eq!(text(&file, 5).expect("read"), "seven");
        assert_eq!(text(&file, 100).expect("read"), "seven b\u{e9}");
        let pipe = dir.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("made");
        for other in [pipe.as_path(), Path::new("/dev/zero"), &dir] {
            let error = text(other, 100).expect_err("refused");
            assert_eq!(error.to_string(), "not a regular file", "{}", other.display());
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
