use super::*;
use crate::board::Process;
use record::Clock;
use record::watched::Sampled;

fn message(boot_us: u64, text: &str) -> Message {
    let class = kernel_log::class(text).expect("of concern");
    Message { boot_us, class, text: text.to_string() }
}

#[test]
fn old_messages_are_facts_and_new_ones_are_events() {
    let clock = Clock { monotonic_us: 10_000_000, wall_us: 0 };
    let tick = Tick { now_us: 2_000_000, clock, cadence_us: 1_000_000 };
    let place = Place::Host("h".into());
    let mut machine = Machine::new("h");
    let mut batch = Batch::default();
    let text = "EDAC MC5: 2 CE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)";
    record_old(
        &[message(1_000_000, text), message(4_000_000, text)],
        10_000_000,
        0,
        &place,
        &mut machine,
        &mut batch,
    );
    let Sampled::Fact(fact) = &batch.lines[0].2 else { panic!("{batch:?}") };
    assert_eq!((fact.topic.as_str(), fact.name.as_str()), ("kernel log", "edac"));
    assert!(
        fact.value.starts_with("2 lines since boot, the last 6 s before the run: EDAC MC5"),
        "{}",
        fact.value
    );
    let new =
        vec![message(11_500_000, text), message(99_000_000, "Out of memory: Killed process 7 (postgres)")];
    record_new(new, &tick, &place, &mut batch);
    let detail: Vec<(u64, &str, Option<u64>)> = batch
        .events
        .iter()
        .map(|event| {
            (
                event.t_us,
                event.more["topic"].as_str().unwrap_or_default(),
                event.more.get("count").and_then(|count| count.as_u64()),
            )
        })
        .collect();
    assert_eq!(detail, [(1_500_000, "edac", Some(2)), (2_000_000, "oom", None)], "nothing is of the future");
}

#[test]
fn a_storm_of_messages_is_cut() {
    let clock = Clock { monotonic_us: 0, wall_us: 0 };
    let tick = Tick { now_us: 2, clock, cadence_us: 1 };
    let mut batch = Batch::default();
    let storm = vec![message(1, "AER: Corrected error received"); MESSAGES_PER_TICK + 7];
    record_new(storm, &tick, &Place::Host("h".into()), &mut batch);
    assert_eq!(batch.events.len(), MESSAGES_PER_TICK + 1);
    assert!(batch.events[MESSAGES_PER_TICK].message.starts_with("7 more"));
}

#[test]
fn parts_of_a_node_are_where_the_links_lead() {
    let root = std::env::temp_dir().join(format!("pgfathom-parts-{}", std::process::id()));
    for folder in ["data", "wal", "space"] {
        std::fs::create_dir_all(root.join(folder)).expect("made");
    }
    std::os::unix::fs::symlink(root.join("wal"), root.join("data/pg_wal")).expect("linked");
    let state = NodeState {
        data_directory: Some(root.join("data")),
        tablespaces: vec![("big".into(), root.join("space"))],
        ..NodeState::default()
    };
    let root = root.canonicalize().expect("there");
    let detail: Vec<(String, String)> =
        parts("n1", &state, true).into_iter().map(|part| (part.what, part.path)).collect();
    let path = |name: &str| root.join(name).to_string_lossy().into_owned();
    assert_eq!(
        detail,
        [
            ("pgdata".to_string(), path("data")),
            ("wal".to_string(), path("wal")),
            ("tablespace big".to_string(), path("space"))
        ]
    );
    assert_eq!(plain_parts("n1", &state)[1].path, path("data/pg_wal"), "another machine's links stay");
    std::fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn only_nodes_of_this_machine_are_looked_at() {
    let board = Arc::new(Board::new());
    let process =
        |pid| Process { pid, backend: "client backend".into(), wait: String::new(), query_id: None };
    let state = |pid, is_local| NodeState { active: vec![process(pid)], is_local, ..NodeState::default() };
    board.set("here", state(1, true));
    board.set("there", state(2, false));
    let mut host = LocalHost { log: None, ..LocalHost::of("h", board, Tree::live()) };
    let nodes: Vec<String> = host.servers(0).into_iter().map(|server| server.node).collect();
    assert_eq!(nodes, ["here"]);
}
