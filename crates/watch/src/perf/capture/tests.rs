use super::*;
use crate::perf::records::Frame;
use std::fs;

const MAPS: &str = "55c508480000-55c508484000 r--p 00000000 fe:00 1234   /usr/bin/a b\n\
    55c508484000-55c508495000 r-xp 00004000 fe:00 1234                       /usr/bin/a b\n\
    7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n\
    7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]\n";

/// A folder that stands for `/proc`.
struct Proc(PathBuf);

impl Proc {
    fn new(name: &str) -> Proc {
        let folder = std::env::temp_dir().join(format!("pgfathom-capture-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Proc(folder)
    }

    fn process(&self, pid: u32, parent: u32, command: &str, maps: &str) {
        let task = self.0.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).expect("made");
        fs::write(task.join("comm"), format!("{command}\n")).expect("written");
        fs::write(self.0.join(format!("{pid}/maps")), maps).expect("written");
        let stat = format!("{pid} ({command}) S {parent} {}\n", "0 ".repeat(30));
        fs::write(self.0.join(format!("{pid}/stat")), stat).expect("written");
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample(pid: u32, address: u64) -> Sample {
    Sample { t_ns: 0, pid, tid: pid, cpu: 0, frames: [Frame::Kernel(!0), Frame::User(address)].into() }
}

fn samples(all: Vec<Sample>) -> Samples {
    Samples { all, ..Samples::default() }
}

/// The name of the process and of what is mapped where its sample was taken.
fn seen(captured: &Captured, sample: &Sample) -> (String, String, u64) {
    let address = sample.user_leaf().expect("an address");
    let mapping = captured.space(sample.pid).and_then(|space| captured.mapping(space, address));
    let name = mapping.map_or("-", |mapping| captured.mapped[mapping.what].name.as_str());
    let command = captured.command(sample).unwrap_or("-");
    (command.to_string(), name.to_string(), mapping.map_or(0, |mapping| mapping.offset_of(address)))
}

#[test]
fn code_is_found_by_address() {
    let proc = Proc::new("maps");
    proc.process(10, 1, "a (b)", MAPS);
    proc.process(11, 1, "a (b)", MAPS);
    let at = |address: u64| sample(10, address);
    let samples = samples(vec![
        at(0x55c5_0848_4010),
        at(0x55c5_0848_0010),
        at(0x55c5_0849_5000),
        at(0x7f00_0000_0fff),
        at(0x7ffc_0000_0004),
        sample(11, 0x55c5_0848_4010),
        sample(0, 1),
    ]);
    let captured = Captured::of(&samples, &proc.0);
    let seen: Vec<(String, String, u64)> = samples.all.iter().map(|one| seen(&captured, one)).collect();
    let name = |name: &str, offset: u64| ("a (b)".to_string(), name.to_string(), offset);
    let expected = [
        name("/usr/bin/a b", 0x4010),
        name("-", 0),
        name("-", 0),
        name("//anon", 0xfff),
        name("[vdso]", 4),
        name("/usr/bin/a b", 0x4010),
        ("swapper".to_string(), "-".to_string(), 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(captured.spaces.len(), 1, "forks share their mappings");
}

#[test]
fn files_are_opened_in_the_view_of_the_process() {
    let proc = Proc::new("root");
    proc.process(10, 1, "a", MAPS);
    let captured = |proc: &Proc| Captured::of(&samples(vec![sample(10, 0x55c5_0848_4010)]), &proc.0);
    assert!(captured(&proc).mapped[0].file.is_none());
    fs::create_dir_all(proc.0.join("10/root/usr/bin")).expect("made");
    fs::write(proc.0.join("10/root/usr/bin/a b"), "x").expect("written");
    assert!(captured(&proc).mapped[0].file.is_some());
    // A file that was replaced is not the one that runs, and a path does not lead outside.
    for name in ["/usr/bin/a b (deleted)", "/usr/../usr/bin/a b"] {
        proc.process(10, 1, "a", &MAPS.replace("/usr/bin/a b", name));
        assert!(captured(&proc).mapped[0].file.is_none(), "{name}");
    }
    fs::create_dir_all(proc.0.join("10/map_files")).expect("made");
    fs::write(proc.0.join("10/map_files/55c508484000-55c508495000"), "x").expect("written");
    assert!(captured(&proc).mapped[0].file.is_some(), "but the kernel gives the very file");
    proc.process(10, 1, "a", "0041f000-006d2000 r-xp 00000000 fe:00 7 /usr/bin/fixed (deleted)\n");
    fs::write(proc.0.join("10/map_files/41f000-6d2000"), "x").expect("written");
    assert!(captured(&proc).mapped[0].file.is_some(), "also at a short address");
}

#[test]
fn a_fork_that_has_ended_was_like_its_parent() {
    let proc = Proc::new("fork");
    proc.process(10, 1, "postgres", MAPS);
    let address = 0x55c5_0848_4010;
    let mut samples = samples(vec![sample(20, address), sample(21, address), sample(22, address)]);
    samples.parents = [(20, 15), (15, 10), (21, 10), (22, 99)].into();
    samples.executed.insert(21);
    samples.commands.insert(21, "sh".into());
    let captured = Captured::of(&samples, &proc.0);
    let seen: Vec<(String, String, u64)> = samples.all.iter().map(|one| seen(&captured, one)).collect();
    assert_eq!(
        seen[0],
        ("postgres".to_string(), "/usr/bin/a b".to_string(), 0x4010),
        "through one that ended, too"
    );
    assert_eq!(seen[1].0, "sh", "it had loaded another program");
    assert_eq!(seen[2].0, "-", "its parent is not known");
}

#[test]
fn one_that_was_there_before_is_known_by_its_addresses() {
    let proc = Proc::new("addresses");
    proc.process(10, 1, "postgres", MAPS);
    proc.process(30, 10, "postgres", MAPS);
    proc.process(40, 1, "fixed", "400000-500000 r-xp 00000000 fe:00 7 /usr/bin/fixed\n");
    let samples = samples(vec![
        sample(30, 0x7ffc_0000_0004),
        sample(40, 0x40_0000),
        sample(50, 0x55c5_0848_4010),
        sample(51, 0x55c5_0848_4010),
        sample(51, 0x1234_5678_9abc),
        sample(52, 0x40_0000),
    ]);
    let captured = Captured::of(&samples, &proc.0);
    let seen: Vec<(String, String, u64)> = samples.all.iter().map(|one| seen(&captured, one)).collect();
    assert_eq!(seen[2], ("postgres".to_string(), "/usr/bin/a b".to_string(), 0x4010));
    assert_eq!((seen[3].0.as_str(), seen[4].0.as_str()), ("-", "-"), "one of its addresses does not fit");
    assert_eq!(seen[5].0, "-", "many programs have code at this address");
}

#[test]
fn a_process_that_has_ended_keeps_the_name_of_an_earlier_look() {
    let sample = |pid: u32| Sample { t_ns: 0, pid, tid: pid, cpu: 0, frames: [Frame::User(1)].into() };
    let samples = Samples { all: vec![sample(7), sample(8)], ..Samples::default() };
    let mut captured = Captured::of(&samples, Path::new("/nowhere"));
    assert_eq!(captured.command(&samples.all[0]), None);
    captured.take_names(&samples, &BTreeMap::from([(7, "postgres".to_string()), (9, "other".to_string())]));
    assert_eq!(captured.command(&samples.all[0]), Some("postgres"));
    assert_eq!(captured.command(&samples.all[1]), None);
}
