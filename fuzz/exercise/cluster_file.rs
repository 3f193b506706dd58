//! Any bytes as a cluster file: its nodes can be reached in some way, or it is refused with a hint.

use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use std::fs;

pub(crate) fn exercise(data: &[u8]) {
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let path = std::env::temp_dir().join(format!("fuzz-cluster-{}-{thread}.toml", std::process::id()));
    fs::write(&path, data).expect("the folder for temporary files is writable");
    let read = ClusterFile::read(&path);
    fs::remove_file(&path).expect("ours");
    let Ok(file) = read else { return };
    assert!(!file.node.is_empty());
    let nobody = Sources { env: &|_| None, os_user: None, home: None, socket_dirs: vec![], sysconfdir: None };
    let _ = file.entry(&nobody);
    for node in &file.node {
        let _ = file.resolve(&node.connection, &nobody);
    }
    // What is written is read as the same.
    file.write(&path).expect("it has a form");
    let again = ClusterFile::read(&path).expect("what was written can be read");
    fs::remove_file(&path).expect("ours");
    assert_eq!(again, file);
}
