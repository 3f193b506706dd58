//! Recorded machines, tick by tick: the lines that are made of them, byte by byte. `PGFATHOM_BLESS=1` writes them anew; the difference is
//! then to be read.
//!
//! | recording | what is wrong with it |
//! |---|---|
//! | `r0-storage` | one slow NVMe drive in a raid10, `stripe=1280`, memory errors, a fan that stops, PCIe errors, a link of half its width; PSI off |
//! | `r1-numa-zfs` | eight memory nodes, four of which give away memory; ZFS 0.8; an old kernel with 14 fields per disk |
//! | `vm-one-queue` | a network card with one queue drowns a processor; loss, swapping, OOM, a virus scanner on `/`; 18 fields per disk |

use proptest::prelude::*;
use record::watched::Sampled;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use watch::Batch;
use watch::host::backends::Target;
use watch::host::files::{Files, Shipped, Tree};
use watch::host::machine::Machine;
use watch::host::server::{Part, Server};
use watch::ssh::shipment::recording;

const NAMES: [&str; 3] = ["r0-storage", "r1-numa-zfs", "vm-one-queue"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines")
}

fn recorded(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.tree"))).expect("the fixture is there")
}

fn servers(name: &str) -> Vec<Server> {
    let part = |what: &str, path: &str| Part { node: "n1".into(), what: what.into(), path: path.into() };
    let (pid, data) = match name {
        "r0-storage" => (5, "/data"),
        "r1-numa-zfs" => (5, "/tank/pg/data"),
        _ => (77, "/var/lib/pg"),
    };
    vec![Server {
        pid: None,
        node: "n1".into(),
        active: vec![Target { pid, node: "n1".into(), backend: "client backend".into() }],
        parts: vec![part("pgdata", data), part("wal", &format!("{data}/pg_wal"))],
    }]
}

/// The lines of a recording, as they would stand in `samples.ndjson`.
fn lines(text: &str, servers: &[Server]) -> (String, Vec<Sampled>) {
    let mut machine = Machine::new("h1");
    let (mut told, mut all) = (String::new(), vec![]);
    for (uptime_us, mut files) in recording(text) {
        let mut batch = Batch::default();
        machine.tick(&mut files, uptime_us, servers, &mut batch);
        for (t_us, interval_us, line) in batch.lines {
            let values = serde_json::to_string(&line).expect("a line");
            writeln!(told, "{t_us} {interval_us} {} {values}", line.source()).expect("written");
            all.push(line);
        }
    }
    (told, all)
}

#[test]
fn recorded_machines_tell_what_they_told() {
    for name in NAMES {
        let (found, _) = lines(&recorded(name), &servers(name));
        let path = folder().join(format!("{name}.lines"));
        if env::var("PGFATHOM_BLESS").is_ok_and(|value| value == "1") {
            fs::write(&path, &found).expect("written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "{name} differs (PGFATHOM_BLESS=1 accepts it)\n--- found\n{found}");
    }
}

#[test]
fn the_slow_member_the_errors_and_the_option_are_seen() {
    let (_, lines) = lines(&recorded("r0-storage"), &servers("r0-storage"));
    let waits: Vec<(&str, &str, f64)> = lines
        .iter()
        .filter_map(|line| match line {
            Sampled::Disk(disk) if disk.member_of == "md0" => {
                Some((disk.device.as_str(), disk.used_for.as_str(), disk.write_await_ms?))
            }
            _ => None,
        })
        .collect();
    let second: Vec<_> = waits.iter().take(4).copied().collect();
    let used = "pgdata,wal";
    assert_eq!(
        second,
        [("nvme0n1", used, 0.15), ("nvme1n1", used, 0.15), ("nvme2n1", used, 5.0), ("nvme3n1", used, 0.15)]
    );
    let hardware: Vec<(&str, &str, Option<f64>)> = lines
        .iter()
        .filter_map(|line| match line {
            Sampled::Hardware(line) => Some((line.kind.as_str(), line.name.as_str(), line.change)),
            _ => None,
        })
        .collect();
    for expected in [
        ("edac", "mc5/dimm0 CPU_SrcID#1_MC#1_Chan#0_DIMM#0 ce", Some(2.0)),
        ("aer", "0000:5e:00.0 storage correctable", Some(4.0)),
        ("fan", "nct6775 CPU1 FAN", None),
        ("mb_stats", "md0 useless_loops", Some(300.0)),
    ] {
        assert!(hardware.contains(&expected), "{expected:?} is not in {hardware:?}");
    }
    let has = |topic: &str, name: &str, value: &str| {
        lines.iter().any(|line| {
            matches!(line, Sampled::Fact(fact) if (fact.topic.as_str(), fact.name.as_str(), fact.value.as_str()) == (topic, name, value))
        })
    };
    assert!(has("mount", "/data stripe", "1280"));
    assert!(has("mount", "n1 pgdata is a mount point", "yes"));
    assert!(has("disk", "n1 wal lies on", "nvme0n1,nvme1n1,nvme2n1,nvme3n1"));
    assert!(has("disk", "0000:5e:00.0 storage link", "8.0 GT/s x2 of 8.0 GT/s x4"));
    assert!(
        lines.iter().any(|line| matches!(line, Sampled::Missing(missing) if missing.what == "pressure")),
        "PSI is off: that is said, and not taken for an idle machine"
    );
}

/// Writes the files of a shipment below a folder, as `--sysroot` wants them.
fn write_tree(files: &mut Shipped, at: &str, root: &Path) {
    for name in files.entries(at) {
        let path = format!("{}/{name}", at.trim_end_matches('/'));
        let real = root.join(path.trim_start_matches('/'));
        if let Some(target) = files.link(&path) {
            fs::create_dir_all(real.parent().expect("below the root")).expect("made");
            let _ = std::os::unix::fs::symlink(target, &real);
        } else if let Ok(text) = files.text(&path).map(str::to_string) {
            fs::create_dir_all(real.parent().expect("below the root")).expect("made");
            fs::write(&real, text).expect("written");
        } else {
            write_tree(files, &path, root);
        }
    }
}

#[test]
fn a_recorded_tree_of_files_tells_the_same_as_its_shipment() {
    for name in NAMES {
        let root = env::temp_dir().join(format!("pgfathom-tree-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let mut moments = recording(&recorded(name));
        let servers = servers(name);
        let (mut of_tree, mut of_shipment) = (Machine::new("h1"), Machine::new("h1"));
        let mut tree: Option<Tree> = None;
        for (number, (uptime_us, files)) in moments.iter_mut().enumerate() {
            let place = root.join(number.to_string());
            write_tree(files, "/", &place);
            let tree = tree.get_or_insert_with(|| Tree::recorded(&place));
            tree.move_to(&place);
            let (mut found, mut expected) = (Batch::default(), Batch::default());
            of_tree.tick(tree, *uptime_us, &servers, &mut found);
            of_shipment.tick(files, *uptime_us, &servers, &mut expected);
            assert_eq!(found, expected, "{name} {number}");
            assert!(!expected.lines.is_empty());
        }
        fs::remove_dir_all(&root).expect("removed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a kernel, a broken pipe or a damaged recording brings: lines, fewer lines, but no panic.
    #[test]
    fn damaged_machines_are_read_to_their_end(
        which in 0..NAMES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n\u{e9}]{0,6}", 0..40_usize), 1..12),
    ) {
        let mut text: Vec<char> = recorded(NAMES[which]).chars().collect();
        for (at, new, cut) in damage {
            let at = at.index(text.len().max(1)).min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, new.chars());
        }
        let text: String = text.into_iter().collect();
        let _ = lines(&text, &servers(NAMES[which]));
    }
}
