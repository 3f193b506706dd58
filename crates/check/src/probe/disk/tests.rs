use super::*;

fn plan(directory: &Path) -> DiskPlan {
    let directory = directory.to_string_lossy().into_owned();
    DiskPlan {
        directory,
        is_data: false,
        measured_mounts: vec![],
        size_bytes: 32 << 20,
        time_ms: 60,
        block_bytes: 8192,
        depths: vec![1, 4],
    }
}

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("pgfathom-disk-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

#[test]
fn every_test_counts_its_operations_and_nothing_stays() {
    let directory = directory("all");
    let disk = measure(&plan(&directory), &AtomicBool::new(false));
    assert_eq!(disk.refused, None);
    let done: Vec<_> = disk.tests.iter().map(|test| (test.pattern, test.depth)).collect();
    use Pattern::{RandomRead, RandomWrite, SequentialRead, SequentialWrite, Sync};
    let expected = [
        (SequentialWrite, 1),
        (SequentialWrite, 4),
        (SequentialRead, 1),
        (SequentialRead, 4),
        (RandomRead, 1),
        (RandomRead, 4),
        (RandomWrite, 1),
        (RandomWrite, 4),
        (Sync, 1),
    ];
    assert_eq!(done, expected);
    for test in &disk.tests {
        assert!(test.latency_us.count > 0 && test.per_s > 0.0, "{test:?}");
        let bytes = test.per_s * test.block_bytes as f64;
        assert!((bytes - test.bytes_per_s).abs() < 1.0, "{test:?}");
        assert_eq!(test.member_await_ms.len(), disk.members.len());
    }
    assert_eq!(std::fs::read_dir(&directory).expect("a folder").count(), 0);
    std::fs::remove_dir(&directory).expect("empty");
}

#[test]
fn a_file_that_would_fill_the_disk_is_refused() {
    let directory = directory("full");
    let greedy = DiskPlan { size_bytes: u64::MAX / 2, ..plan(&directory) };
    let refused = measure(&greedy, &AtomicBool::new(false)).refused.expect("there is no such disk");
    assert!(refused.contains("would leave less than") && refused.contains("--size"), "{refused}");
    let nowhere = DiskPlan { directory: "/nowhere/at/all".to_string(), ..plan(&directory) };
    assert!(
        measure(&nowhere, &AtomicBool::new(false)).refused.expect("no folder").contains("not a directory")
    );
    std::fs::remove_dir(&directory).expect("empty");
}

#[test]
fn a_stop_ends_the_measurement_and_leaves_nothing() {
    let directory = directory("stop");
    let stop = AtomicBool::new(true);
    let disk = measure(&plan(&directory), &stop);
    assert!(disk.refused.is_some() && disk.tests.is_empty(), "{disk:?}");
    assert_eq!(std::fs::read_dir(&directory).expect("a folder").count(), 0);
    std::fs::remove_dir(&directory).expect("empty");
}

#[test]
fn content_is_unique_and_aligned() {
    let mut buffer = Buffer::new(8192);
    assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN_BYTES, 0);
    buffer.stamp(1);
    let before = buffer.bytes().to_vec();
    buffer.stamp(2);
    assert_ne!(before[..4096], buffer.bytes()[..4096]);
    assert_ne!(buffer.bytes()[..4096], buffer.bytes()[4096..]);
}

#[test]
fn members_wait_on_average() {
    assert_eq!(awaits(&[(0, 0), (10, 50), (5, 5)], &[(10, 100), (20, 51), (5, 5)]), [10.0, 0.1, -1.0]);
    assert_eq!(sequential_depths(&[1, 8, 32]), [1, 8]);
    assert_eq!(sequential_depths(&[32]), [32]);
}

#[test]
fn a_file_system_is_measured_once_for_all_data_directories_on_it() {
    let directory = directory("once");
    let link = directory.join("link");
    let data = directory.join("data");
    std::fs::create_dir_all(&data).expect("a folder");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&data, &link).expect("a link");
    let mount = place::of(&data).expect("a place").mount.mount;
    let again = DiskPlan { is_data: true, measured_mounts: vec![mount.clone()], ..plan(&link) };
    let disk = measure(&again, &AtomicBool::new(false));
    assert_eq!((disk.refused, disk.tests.len(), disk.mount.as_str()), (None, 0, mount.as_str()));
    assert_eq!(Path::new(&disk.real_directory), data.canonicalize().expect("it is there"));
    // A directory that was named is measured whatever was measured before.
    let named = DiskPlan { is_data: false, ..again };
    assert!(!measure(&named, &AtomicBool::new(false)).tests.is_empty());
    std::fs::remove_dir_all(&directory).expect("ours");
}
