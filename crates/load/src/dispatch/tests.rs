use super::*;
use crate::route::Buckets;
use crate::ycsb::Ycsb;
use data::ycsb::{Compressible, KeyOrder, Spec};
use proptest::prelude::*;

fn owned(leaves: &[u16]) -> Owned {
    leaves.iter().map(|leaf| (*leaf, None)).collect()
}

fn set(capacity: u64, chunks: &[u64]) -> ChunkSet {
    let mut set = ChunkSet::new(capacity);
    chunks.iter().for_each(|chunk| {
        set.insert(*chunk);
    });
    set
}

fn all(capacity: u64) -> ChunkSet {
    ChunkSet::of_range(capacity, 0..capacity)
}

fn task(dispatcher: &Dispatcher, node: usize) -> Task {
    match dispatcher.next(node, Instant::now()) {
        Next::Task(task) => task,
        other => panic!("{other:?}"),
    }
}

fn buckets(chunk: u64) -> Buckets {
    let spec = Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    let mut buckets = Buckets::new(crate::dataset::Leaves::new(1, u32::from(LEAVES)));
    buckets.fill(&Ycsb::new(u64::MAX, spec), chunk * 100..chunk * 100 + 100);
    buckets
}

#[test]
fn what_is_missing_is_what_no_ledger_has() {
    let all = all(6);
    let missing = |coverage: &[(Option<Vec<u16>>, ChunkSet)]| -> Vec<(Vec<u16>, Vec<u64>)> {
        let plan = NodePlan::new(owned(&[1, 3, 4]), &all, coverage, &|_| None);
        let numbers = |set: &ChunkSet| (0..6).filter(|chunk| set.contains(*chunk)).collect();
        plan.classes.iter().map(|class| (class.leaves.to_vec(), numbers(&class.chunks))).collect()
    };
    assert_eq!(missing(&[]), [(vec![1, 3, 4], vec![0, 1, 2, 3, 4, 5])]);
    assert_eq!(missing(&[(None, set(6, &[0, 2]))]), [(vec![1, 3, 4], vec![1, 3, 4, 5])]);
    // Leaf 3 has come from a node that had loaded {0, 3} of some chunks; this node had loaded {1, 4} of others.
    let moved = [(Some(vec![0, 3]), set(6, &[0, 1, 5])), (Some(vec![1, 4]), set(6, &[0, 2]))];
    let expected = [(vec![1, 3, 4], vec![3, 4]), (vec![1, 4], vec![1, 5]), (vec![3], vec![2])];
    assert_eq!(missing(&moved), expected);
    // Leaves of other nodes say nothing.
    assert_eq!(missing(&[(Some(vec![0, 2, 5]), all.clone())]).len(), 1);
    assert_eq!(missing(&[(Some(vec![1, 3, 4]), all.clone())]), []);
    assert!(NodePlan::new(owned(&[]), &all, &[], &|_| None).classes.is_empty());
}

#[test]
fn one_stream_hashes_and_all_nodes_have_it() {
    let plan = |leaves: &[u16]| NodePlan::new(owned(leaves), &all(3), &[], &|_| None);
    let dispatcher = Dispatcher::new(true, vec![plan(&[0, 2]), plan(&[1, 3])]);
    let first = task(&dispatcher, 0);
    assert_eq!((first.chunk, first.sorted.is_none()), (0, true));
    // While chunk 0 is being hashed for both, the other node begins elsewhere.
    let second = task(&dispatcher, 1);
    assert_eq!((second.chunk, second.sorted.is_none()), (1, true));
    dispatcher.share(0, 0, |leaves| buckets(0).sorted(leaves));
    let third = task(&dispatcher, 1);
    assert_eq!(third.chunk, 0);
    let sorted = third.sorted.unwrap();
    assert_eq!(sorted.len(), buckets(0).len(1) + buckets(0).len(3));
    assert!(sorted.rows(3).eq(buckets(0).rows(3)));
    dispatcher.end(1, 0, None);
    dispatcher.end(0, 0, Some(&[0, 2]));
    assert_eq!(dispatcher.todo(), [2, 2]);
}

#[test]
fn a_stream_that_never_gets_to_hashing_holds_up_no_other() {
    let plan = |leaves: &[u16]| NodePlan::new(owned(leaves), &all(1), &[], &|_| None);
    let dispatcher = Dispatcher::new(true, vec![plan(&[0]), plan(&[1])]);
    let now = Instant::now();
    assert!(matches!(dispatcher.next(0, now), Next::Task(_)));
    assert!(matches!(dispatcher.next(1, now), Next::Wait(_)));
    let later = now + HASHING_PATIENCE;
    assert!(matches!(dispatcher.next(1, later), Next::Task(Task { chunk: 0, sorted: None, .. })));
}

#[test]
fn a_chunk_of_another_loader_is_looked_at_again_when_nothing_else_is_left() {
    let dispatcher = Dispatcher::new(true, vec![NodePlan::new(owned(&[0]), &all(2), &[], &|_| None)]);
    let now = Instant::now();
    assert_eq!(task(&dispatcher, 0).chunk, 0);
    dispatcher.set_aside(0, 0, now);
    assert_eq!(task(&dispatcher, 0).chunk, 1);
    dispatcher.end(0, 1, None);
    assert!(matches!(dispatcher.next(0, now), Next::Wait(_)));
    assert!(matches!(dispatcher.next(0, now + BUSY_PAUSE), Next::Task(Task { chunk: 0, .. })));
    dispatcher.end(0, 0, None);
    assert!(matches!(dispatcher.next(0, now), Next::End));
}

#[test]
fn a_part_that_failed_comes_again() {
    let dispatcher = Dispatcher::new(true, vec![NodePlan::new(owned(&[0]), &all(3), &[], &|_| None)]);
    for chunk in 0..3 {
        assert_eq!(task(&dispatcher, 0).chunk, chunk);
    }
    assert!(matches!(dispatcher.next(0, Instant::now()), Next::Wait(_)));
    dispatcher.end(0, 1, Some(&[]));
    assert_eq!(task(&dispatcher, 0).chunk, 1);
}

#[test]
fn every_peer_loads_everything_where_rows_are_repeated() {
    let plan = || NodePlan::new(owned(&[0]), &all(2), &[], &|_| None);
    let dispatcher = Dispatcher::new(false, vec![plan(), plan()]);
    task(&dispatcher, 0);
    dispatcher.end(0, 0, None);
    assert_eq!(dispatcher.todo(), [1, 2], "a peer's ledger speaks for itself alone");
}

#[test]
fn nothing_is_handed_out_while_the_plan_is_stale() {
    let plan = || NodePlan::new(owned(&[0]), &all(2), &[], &|_| None);
    let dispatcher = Dispatcher::new(true, vec![plan()]);
    dispatcher.set_stale();
    assert!(dispatcher.is_stale());
    assert!(matches!(dispatcher.next(0, Instant::now()), Next::Wait(_)));
    dispatcher.replan(vec![plan()]);
    assert!(matches!(dispatcher.next(0, Instant::now()), Next::Task(_)));
}

#[test]
fn a_node_that_is_paused_gets_nothing_and_the_others_go_on() {
    let plan = || NodePlan::new(owned(&[0]), &all(2), &[], &|_| None);
    let dispatcher = Dispatcher::new(false, vec![plan(), plan()]);
    assert!(dispatcher.set_paused(0, true) && !dispatcher.set_paused(0, true));
    assert!(matches!(dispatcher.next(0, Instant::now()), Next::Wait(_)));
    assert!(matches!(dispatcher.next(1, Instant::now()), Next::Task(_)));
    assert!(dispatcher.set_paused(0, false));
    assert!(matches!(dispatcher.next(0, Instant::now()), Next::Task(_)));
}

/// What may happen between two looks at the dispatcher.
#[derive(Clone, Debug)]
enum Step {
    /// A stream of this node requests work.
    Take(usize),
    /// A stream of this node commits one of its parts, if its leaves are still where they were.
    Commit(usize, usize),
    /// A stream of this node gives one of its parts up.
    Fail(usize, usize),
    /// A leaf moves.
    Move(u16, usize),
    /// The loader notices and makes a new plan.
    Replan,
}

const NODES: usize = 3;
const LEAVES: u16 = 5;
const CHUNKS: u64 = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..NODES).prop_map(Step::Take),
        6 => (0..NODES, 0..4usize).prop_map(|(node, place)| Step::Commit(node, place)),
        1 => (0..NODES, 0..4usize).prop_map(|(node, place)| Step::Fail(node, place)),
        1 => (0..LEAVES, 0..NODES).prop_map(|(leaf, node)| Step::Move(leaf, node)),
        2 => Just(Step::Replan),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A cluster of ledgers and leaves, with the checks that a transaction makes there.
struct World {
    owner: Vec<usize>,
    /// Counts attachments, so that a leaf that comes back is another one.
    attached: Vec<u32>,
    ledgers: Vec<Vec<(u64, Vec<u16>)>>,
    loaded: BTreeMap<(u64, u16), u32>,
}

impl World {
    fn owned(&self, node: usize) -> Owned {
        let leaves = (0..LEAVES).filter(|leaf| self.owner[usize::from(*leaf)] == node);
        let attachment = |leaf: u16| Attachment {
            oid: self.attached[usize::from(leaf)],
            xmin: String::new(),
            relation: String::new(),
            parent: String::new(),
        };
        leaves.map(|leaf| (leaf, Some(attachment(leaf)))).collect()
    }

    fn plans(&self) -> Vec<NodePlan> {
        let coverage = |ledger: &Vec<(u64, Vec<u16>)>| -> Coverage {
            ledger.iter().map(|(chunk, leaves)| (Some(leaves.clone()), set(CHUNKS, &[*chunk]))).collect()
        };
        let coverage = united(
            &self.ledgers.iter().map(coverage).collect::<Vec<_>>(),
            0,
            usize::from(LEAVES),
            usize::from(LEAVES),
        );
        (0..NODES).map(|node| NodePlan::new(self.owned(node), &all(CHUNKS), &coverage, &|_| None)).collect()
    }

    /// What the transaction of a part does: `Ok` with the leaves that are loaded afterwards, `Err` when the plan is stale.
    fn commit(&mut self, node: usize, task: &Task) -> Result<Option<Vec<u16>>, ()> {
        let overlaps = |(chunk, leaves): &&(u64, Vec<u16>)| {
            *chunk == task.chunk && leaves.iter().any(|leaf| task.leaves.contains(leaf))
        };
        if let Some((_, leaves)) = self.ledgers[node].iter().find(overlaps) {
            let whole = task.leaves.iter().all(|leaf| leaves.contains(leaf));
            return if whole { Ok(None) } else { Err(()) };
        }
        let now = self.owned(node);
        if task.leaves.iter().any(|leaf| now.get(leaf) != task.owned.get(leaf)) {
            return Err(());
        }
        self.ledgers[node].push((task.chunk, task.leaves.to_vec()));
        for leaf in task.leaves.iter() {
            *self.loaded.entry((task.chunk, *leaf)).or_default() += 1;
        }
        Ok(Some(task.leaves.to_vec()))
    }
}

proptest! {
    /// Whatever moves, fails and is planned anew while two loaders work: every chunk gets into every leaf exactly once.
    #[test]
    fn every_row_is_loaded_once_whatever_moves(mine in steps(), other in steps(), turns: u64) {
        let mut world = World {
            owner: (0..usize::from(LEAVES)).map(|leaf| leaf % NODES).collect(),
            attached: vec![0; usize::from(LEAVES)],
            ledgers: vec![Vec::new(); NODES],
            loaded: BTreeMap::new(),
        };
        let loaders = [Dispatcher::new(true, world.plans()), Dispatcher::new(true, world.plans())];
        let mut flying: [Vec<Vec<Task>>; 2] = [vec![Vec::new(); NODES], vec![Vec::new(); NODES]];
        let mut scripts = [mine.into_iter(), other.into_iter()];
        let mut act = |world: &mut World, who: usize, step: Step| {
            let (loader, flying) = (&loaders[who], &mut flying[who]);
            match step {
                Step::Take(node) => {
                    if let Next::Task(task) = loader.next(node, Instant::now()) {
                        loader.share(node, task.chunk, |leaves| buckets(task.chunk).sorted(leaves));
                        flying[node].push(task);
                    }
                }
                Step::Commit(node, place) if place < flying[node].len() => {
                    let task = flying[node].swap_remove(place);
                    match world.commit(node, &task) {
                        Ok(covered) => loader.end(node, task.chunk, Some(&covered.unwrap_or(task.leaves.to_vec()))),
                        Err(()) => {
                            loader.end(node, task.chunk, Some(&[]));
                            loader.set_stale();
                        }
                    }
                }
                Step::Fail(node, place) if place < flying[node].len() => {
                    let task = flying[node].swap_remove(place);
                    loader.end(node, task.chunk, Some(&[]));
                }
                Step::Commit(..) | Step::Fail(..) => {}
                Step::Move(leaf, node) => {
                    world.owner[usize::from(leaf)] = node;
                    world.attached[usize::from(leaf)] += 1;
                }
                Step::Replan => loader.replan(world.plans()),
            }
        };
        let mut turns = turns;
        loop {
            turns = turns.rotate_left(1);
            let who = (turns & 1) as usize;
            match scripts[who].next() {
                Some(step) => act(&mut world, who, step),
                None => match scripts[1 - who].next() {
                    Some(step) => act(&mut world, 1 - who, step),
                    None => break,
                },
            }
        }
        // Then both run to their ends, without further moves.
        for _ in 0..2 * CHUNKS * u64::from(LEAVES) {
            for who in [0, 1] {
                if loaders[who].is_stale() {
                    act(&mut world, who, Step::Replan);
                }
                for node in 0..NODES {
                    act(&mut world, who, Step::Take(node));
                    act(&mut world, who, Step::Commit(node, 0));
                }
            }
        }
        act(&mut world, 0, Step::Replan);
        prop_assert!(matches!(loaders[0].next(0, Instant::now()), Next::End), "{:?}", loaders[0]);
        prop_assert_eq!(world.loaded.len() as u64, CHUNKS * u64::from(LEAVES));
        prop_assert!(world.loaded.values().all(|times| *times == 1), "{:?}", world.loaded);
    }
}
