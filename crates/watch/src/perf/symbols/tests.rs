use super::*;
use crate::perf::records::{Sample, Samples};

const KALLSYMS: &str = "0000000000000000 A fixed_percpu_data\n\
    ffffffff81000000 T _stext\n\
    ffffffff81000000 t .head\n\
    ffffffff81000100 t osq_lock\n\
    ffffffff81000200 W sys_weak\n\
    ffffffff81000200 T __do_sys_strong\n\
    ffffffff81000300 d some_data\n\
    ffffffff81000300 t $x\n\
    garbage\n\
    ffffffffc0000000 t zio_execute\t[zfs]\n\
    ffffffff81000400 T late\n";

#[test]
fn the_kernels_functions_are_found_by_address() {
    let kernel = Kernel::parse(KALLSYMS.as_bytes());
    let name = |address: u64| kernel.function(address).unwrap_or(("-", "-"));
    assert_eq!(name(0xffff_ffff_8100_0000), ("_stext", "[kernel.kallsyms]"), "not the local name");
    assert_eq!(name(0xffff_ffff_8100_01ff).0, "osq_lock");
    assert_eq!(name(0xffff_ffff_8100_0200).0, "__do_sys_strong", "not the weak name");
    assert_eq!(name(0xffff_ffff_8100_0310).0, "__do_sys_strong", "neither data nor a label of the compiler");
    assert_eq!(name(0xffff_ffff_8100_0401).0, "late");
    assert_eq!(name(0xffff_ffff_c000_0004), ("zio_execute", "[zfs]"));
    assert_eq!(name(0xffff_ffff_c010_0000).0, "-", "too far away");
    assert_eq!(name(5).0, "-");
    let hidden = Kernel::parse(b"0000000000000000 T _stext\n0000000000000000 t osq_lock\n");
    assert_eq!(hidden.function(0xffff_ffff_8100_0000), None);
}

#[test]
fn lines_are_those_of_perf() {
    let mut symbols = Symbols { kernel: Some(Kernel::parse(KALLSYMS.as_bytes())), ..Symbols::default() };
    let captured = Captured::default();
    let mut names = symbols.of(&captured);
    for _ in 0..2 {
        let line = names.line(None, Frame::Kernel(0xffff_ffff_8100_0104));
        assert_eq!(line, "\tffffffff81000104 osq_lock ([kernel.kallsyms])\n");
        assert_eq!(
            names.line(Some(3), Frame::Kernel(0x10)),
            "\t              10 [unknown] ([kernel.kallsyms])\n"
        );
        assert_eq!(names.line(Some(3), Frame::User(0x10)), "\t              10 [unknown] ([unknown])\n");
    }
    assert_eq!(plain("a\nb\u{1b}"), "a?b?");
}

#[test]
fn functions_of_this_process_are_named_and_files_read_once() {
    let address = vdso as fn() -> Option<Vec<u8>> as usize as u64 + 1;
    let pid = std::process::id();
    let frames = [Frame::User(address)].into();
    let all = vec![Sample { t_ns: 0, pid, tid: pid, cpu: 0, frames }];
    let captured = Captured::of(&Samples { all, ..Samples::default() }, Path::new("/proc"));
    let mut symbols = Symbols::default();
    for _ in 0..2 {
        let mut names = symbols.of(&captured);
        let line = names.line(captured.space(pid), Frame::User(address));
        assert!(line.contains("vdso") && line.contains("symbols") && line.ends_with(")\n"), "{line}");
    }
    assert_eq!(symbols.images.len(), 1);
}

#[test]
fn the_kernels_pages_in_every_process_have_functions() {
    let Some(bytes) = vdso() else { return };
    let image = Image::read(Box::new(bytes)).expect("a library");
    let names: Vec<String> =
        (0..VDSO_BYTES_MAX).step_by(16).filter_map(|offset| image.function(offset)).collect();
    assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
}

#[test]
fn debugging_information_is_named_after_the_build() {
    assert_eq!(
        debug_path(&[0xab, 0x01, 0xff]),
        Some(PathBuf::from("/usr/lib/debug/.build-id/ab/01ff.debug"))
    );
    assert_eq!(debug_path(&[]), None);
}
