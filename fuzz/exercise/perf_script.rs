//! Any bytes as the text of `perf script`: stacks come out whose shares are shares.

use explain::stacks::{AUDIT, EXT4_ALLOCATOR, KERNEL_LOCKS, Stacks, ZFS_COUNTERS};
use record::stacks::slice;
use std::path::Path;

pub(crate) fn exercise(data: &[u8]) {
    let mut stacks = Stacks::default();
    let text = String::from_utf8_lossy(data);
    stacks.take(&slice(Path::new("1-busy.perf"), &text, 0));
    assert!(stacks.samples() <= text.lines().count() as u64);
    for family in [AUDIT, EXT4_ALLOCATOR, KERNEL_LOCKS, ZFS_COUNTERS] {
        let (with, inside) = (stacks.share_with(family), stacks.share_in(family));
        assert!((0.0..=1.0).contains(&with) && (0.0..=with).contains(&inside), "{with} {inside}");
        assert!((0.0..=inside).contains(&stacks.share_in_through(family, KERNEL_LOCKS)));
    }
}
