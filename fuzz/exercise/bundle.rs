//! Any bytes as a tar archive: what is unpacked are plain files of a run below the folder, never more than allowed.

use std::fs;
use std::path::{Path, PathBuf};
use watch::bundle::archive;

/// What an input may unpack to.
const UNPACKED_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn exercise(data: &[u8]) {
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let root = std::env::temp_dir().join(format!("fuzz-bundle-{}-{thread}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let into = root.join("into");
    fs::create_dir_all(&into).expect("the folder for temporary files is writable");
    let unpacked = archive::unpack(data, &into, UNPACKED_BYTES_MAX);
    assert_eq!(entries(&root), std::slice::from_ref(&into), "nothing beside the folder");
    let mut bytes = 0;
    count(&into, 0, &mut bytes);
    assert!(bytes <= UNPACKED_BYTES_MAX);
    if let Ok((folder, names)) = unpacked {
        assert!(folder.starts_with(&into) && !names.is_empty());
        names.iter().for_each(|name| assert!(folder.join(name).is_file(), "{name}"));
    }
    fs::remove_dir_all(&root).expect("a folder of ours");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("there").flatten().map(|entry| entry.path()).collect()
}

fn count(folder: &Path, depth: u32, bytes: &mut u64) {
    assert!(depth <= 2, "{}", folder.display());
    for path in entries(folder) {
        let data = fs::symlink_metadata(&path).expect("there");
        assert!(data.is_file() || data.is_dir(), "{}", path.display());
        if data.is_dir() {
            count(&path, depth + 1, bytes);
        } else {
            *bytes += data.len();
        }
    }
}
