//! The same session code, driven by a scripted server on a simulated network with a virtual clock. One seed is one run, to the
//! nanosecond: torn packets, slow readers, lost connections before and after a commit, serialization failures, restarts.
//!
//! At the end the server's table is compared with what replaying the sessions' own records says may stand there: every way the
//! client could lose count of what it did shows as a stale, foreign, missing or unexpected row.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use data::ycsb::{Compressible, FIELD_COUNT, Judgement, KeyOrder, Spec, Table, Version};
use run::client::{Client, Plan, SessionRecord};
use run::control::Control;
use run::engine::connector::{DialError, Dialing};
use run::engine::link::{Link, Pipe, Stream};
use run::engine::reactor::{Reactor, Ready};
use run::engine::session::Shared;
use run::engine::worker::{Housekeeping, Worker};
use run::engine::{NANOS_PER_SECOND, Nanos};
use run::random::Random;
use run::responder::{Backend, Executed, Parameters, Responder};
use run::schedule::{Pace, Schedule};
use run::tally::{Posted, Shape, Slot, Tally};
use run::workload::{Item, Mix};
use wire::prepared::Wire;
use workloads::driving::RunSpec as _;
use workloads::replay::Writer;
use workloads::ycsb::replay::{History, RowVerdict, VersionVerdict, WriterSpec};
use workloads::ycsb::run::{Distribution, Operation, Verb, Ycsb};

const ROWS: u64 = 40;
const SESSIONS: usize = 5;
const RUN: u16 = 7;
const SEEDS: u64 = 80;
const MILLI: Nanos = 1_000_000;

/// How often, in percent of requests, each fault strikes.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost_before: u64,
    lost_after: u64,
    serialization: u64,
    disk_full: u64,
    restart: u64,
}

const CALM: Faults = Faults { lost_before: 0, lost_after: 0, serialization: 0, disk_full: 0, restart: 0 };
const STORM: Faults = Faults { lost_before: 2, lost_after: 2, serialization: 6, disk_full: 2, restart: 1 };

/// The server's table: rows by key, fields as bytes.
#[derive(Default)]
struct Model {
    rows: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// What the next statement does instead of working.
    refuse: Option<(&'static str, &'static str)>,
    executed: u64,
}

impl Backend for Model {
    fn execute(&mut self, sql: &str, parameters: Parameters<'_>) -> Executed<'_> {
        if let Some((sqlstate, message)) = self.refuse.take() {
            return Executed::Error { sqlstate, message };
        }
        self.executed += 1;
        let values: Vec<Vec<u8>> = parameters.map(|value| value.unwrap_or_default().to_vec()).collect();
        let found =
            |is_there: bool, yes, no| Executed::Done { tag: if is_there { yes } else { no }, row: None };
        if sql.starts_with("SELECT * FROM usertable WHERE ycsb_key = ") {
            return found(self.rows.contains_key(&values[0]), "SELECT 1", "SELECT 0");
        }
        if let Some(rest) = sql.strip_prefix("UPDATE usertable SET field") {
            let column = usize::from(rest.as_bytes()[0] - b'0');
            let row = self.rows.get_mut(&values[1]);
            return found(row.map(|row| row[column] = values[0].clone()).is_some(), "UPDATE 1", "UPDATE 0");
        }
        if sql.starts_with("INSERT INTO usertable") {
            assert!(
                self.rows.insert(values[0].clone(), values[1..].to_vec()).is_none(),
                "a key is inserted once"
            );
            return Executed::Done { tag: "INSERT 0 1", row: None };
        }
        assert_eq!(sql, "ROLLBACK", "a statement the workload does not send");
        Executed::Done { tag: "ROLLBACK", row: None }
    }
}

struct Connection {
    session: usize,
    responder: Responder,
    request: Vec<u8>,
    /// Bytes on their way to the client, and when they are there.
    reply: VecDeque<(Nanos, u8)>,
    closed_at: Option<Nanos>,
    is_dead: bool,
}

struct World {
    now: Nanos,
    random: Random,
    faults: Faults,
    connections: Vec<Connection>,
    /// When which session has something to look at.
    events: BinaryHeap<Reverse<(Nanos, usize)>>,
    model: Model,
    refuses_until: Nanos,
}

type Shared_ = Arc<Mutex<World>>;

fn lock(world: &Shared_) -> MutexGuard<'_, World> {
    world.lock().unwrap()
}

impl World {
    fn strikes(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn close(&mut self, connection: usize) {
        let at = self.now + self.random.below(MILLI);
        let session = self.connections[connection].session;
        self.connections[connection].is_dead = true;
        self.connections[connection].closed_at = Some(at);
        self.events.push(Reverse((at, session)));
    }

    /// The server's turn: answers whole requests, or lets a fault strike. Only requests that end in Sync or Query are struck, and
    /// only once the session has prepared everything.
    fn serve(&mut self, connection: usize) {
        let request = std::mem::take(&mut self.connections[connection].request);
        let is_work = request.first() == Some(&b'B') && request.ends_with(b"S\0\0\0\x04");
        if is_work && self.strikes(self.faults.restart) {
            self.refuses_until = self.now + 200 * MILLI;
            (0..self.connections.len())
                .filter(|&other| !self.connections[other].is_dead)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|other| self.close(other));
            return;
        }
        if is_work && self.strikes(self.faults.lost_before) {
            return self.close(connection);
        }
        if is_work && self.strikes(self.faults.serialization) {
            self.model.refuse = Some(("40001", "could not serialize access"));
        } else if is_work && self.strikes(self.faults.disk_full) {
            self.model.refuse = Some(("53100", "could not extend file"));
        }
        let mut out = Vec::new();
        let used = self.connections[connection].responder.answer(&request, &mut self.model, &mut out);
        self.model.refuse = None;
        self.connections[connection].request = request[used..].to_vec();
        if is_work && self.strikes(self.faults.lost_after) {
            return self.close(connection);
        }
        // Torn packets: the reply arrives in pieces at moments of their own, in order.
        let mut at = self.now + 1_000 + self.random.below(MILLI);
        let session = self.connections[connection].session;
        for byte in out {
            if self.random.below(40) == 0 {
                self.events.push(Reverse((at, session)));
                at += self.random.below(MILLI);
            }
            self.connections[connection].reply.push_back((at, byte));
        }
        self.events.push(Reverse((at, session)));
    }
}

struct SimulatedPipe {
    world: Shared_,
    connection: usize,
}

impl std::fmt::Debug for SimulatedPipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.connection)
    }
}

impl Pipe for SimulatedPipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut world = lock(&self.world);
        let now = world.now;
        let connection = &mut world.connections[self.connection];
        let ready = connection.reply.iter().take_while(|(at, _)| *at <= now).count().min(buffer.len());
        for slot in &mut buffer[..ready] {
            *slot = connection.reply.pop_front().unwrap().1;
        }
        match connection.closed_at {
            _ if ready > 0 => Ok(ready),
            Some(at) if at <= now => Ok(0),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut world = lock(&self.world);
        let connection = &world.connections[self.connection];
        if connection.is_dead {
            return if connection.closed_at <= Some(world.now) {
                Err(io::ErrorKind::BrokenPipe.into())
            } else {
                Ok(bytes.len())
            };
        }
        // A slow reader takes part of a request, and the rest later.
        if world.random.below(8) == 0 {
            let session = world.connections[self.connection].session;
            let at = world.now + world.random.below(MILLI);
            world.events.push(Reverse((at, session)));
            if bytes.len() < 2 || world.random.below(2) == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let part = 1 + world.random.below(bytes.len() as u64 - 1) as usize;
            world.connections[self.connection].request.extend_from_slice(&bytes[..part]);
            return Ok(part);
        }
        world.connections[self.connection].request.extend_from_slice(bytes);
        world.serve(self.connection);
        Ok(bytes.len())
    }
}

struct SimulatedReactor(Shared_);

impl Reactor for SimulatedReactor {
    fn now(&self) -> Nanos {
        lock(&self.0).now
    }

    fn adopt(&mut self, _: usize, _: &mut Link) -> io::Result<()> {
        Ok(())
    }

    fn watch_room(&mut self, _: RawFd, _: usize, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _: Nanos, deadline: Nanos, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut world = lock(&self.0);
        match world.events.peek() {
            Some(&Reverse((at, _))) if at <= deadline => {
                world.now = world.now.max(at);
                let Some(Reverse((_, index))) = world.events.pop() else { return Ok(()) };
                let now = world.now;
                let is_closed = world
                    .connections
                    .iter()
                    .rfind(|connection| connection.session == index)
                    .is_some_and(|connection| connection.closed_at.is_some_and(|at| at <= now));
                ready.push(Ready { index, is_closed });
            }
            _ => {
                assert_ne!(deadline, Nanos::MAX, "every session waits and nothing will ever happen");
                world.now = world.now.max(deadline);
            }
        }
        Ok(())
    }
}

struct SimulatedDialing {
    world: Shared_,
    answers: Vec<(usize, Result<Link, DialError>)>,
}

impl Dialing for SimulatedDialing {
    fn request(&mut self, index: usize) {
        let mut world = lock(&self.world);
        let at = world.now + world.random.below(MILLI);
        world.events.push(Reverse((at, index)));
        if world.now < world.refuses_until {
            let error =
                DialError { message: "starting up".into(), sqlstate: None, hint: None, is_transient: true };
            self.answers.push((index, Err(error)));
            return;
        }
        let connection = world.connections.len();
        world.connections.push(Connection {
            session: index,
            responder: Responder::default(),
            request: Vec::new(),
            reply: VecDeque::new(),
            closed_at: None,
            is_dead: false,
        });
        let pipe = SimulatedPipe { world: Arc::clone(&self.world), connection };
        self.answers.push((index, Ok(Link::new(Stream::Simulated(Box::new(pipe)), None, &[]))));
    }

    fn collect(&mut self, into: &mut Vec<(usize, Result<Link, DialError>)>) {
        into.append(&mut self.answers);
    }
}

struct Idle;

impl Housekeeping for Idle {
    fn is_due(&self, _: Nanos) -> bool {
        false
    }

    fn next_tick(&self) -> Nanos {
        Nanos::MAX
    }

    fn tick(&mut self, _: Nanos) -> bool {
        true
    }
}

/// Everything a run leaves behind.
struct Left {
    end: Nanos,
    posted: Posted,
    records: Vec<SessionRecord>,
    rows: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    spec: WriterSpec,
    lost: u64,
}

fn table() -> Table {
    Table::new(Spec { seed: 2, key_order: KeyOrder::Scattered, compressible: Compressible::default() })
}

fn simulate(seed: u64, faults: Faults, pace: Pace) -> Left {
    let table = table();
    let mut model = Model::default();
    for row in 0..ROWS {
        let mut fields = [[0; 100]; FIELD_COUNT];
        table.row_fields(row, &mut fields);
        model.rows.insert(table.key(row).to_vec(), fields.iter().map(|field| field.to_vec()).collect());
    }
    let world = Arc::new(Mutex::new(World {
        now: NANOS_PER_SECOND,
        random: Random::for_stream(seed, 99),
        faults,
        connections: Vec::new(),
        events: BinaryHeap::new(),
        model,
        refuses_until: 0,
    }));
    let item = |verb, distribution, weight| {
        (Item { name: format!("{verb:?}"), weight }, Operation { verb, distribution })
    };
    let items = [
        item(Verb::Read, Distribution::Latest, 2),
        item(Verb::Update, Distribution::Zipfian, 4),
        item(Verb::ReadModifyWrite, Distribution::Latest, 2),
        item(Verb::Insert, Distribution::Latest, 2),
    ];
    let ycsb = Ycsb::new(table, ROWS, ROWS, SESSIONS as u64, RUN).with_items(items);
    let mix = Mix::of(ycsb.clone()).unwrap();
    let mut spec = WriterSpec::new(mix.items(), 0, &ycsb, seed);
    let control = Arc::new(Control::default());
    let plan = Arc::new(Plan {
        mix,
        wire: Wire::Libpq,
        seed,
        tries_max: 3,
        transactions_per_session: None,
        control: Arc::clone(&control),
    });
    let mut schedule = Schedule::new(pace, None, Random::for_stream(seed, 0));
    schedule.open(NANOS_PER_SECOND + 50 * MILLI, 3 * NANOS_PER_SECOND);
    let shared = Shared::new(schedule, SESSIONS);
    let tally = Rc::new(RefCell::new(Tally::new(Shape::of_types(4), pace != Pace::Closed, None)));
    let records: Vec<Rc<RefCell<SessionRecord>>> = (0..SESSIONS).map(|_| Rc::default()).collect();
    let dialing = SimulatedDialing { world: Arc::clone(&world), answers: Vec::new() };
    let reactor = SimulatedReactor(Arc::clone(&world));
    let mut worker = Worker::new(reactor, Rc::clone(&shared), Box::new(dialing), SESSIONS, |session| {
        let client = Client {
            plan: Arc::clone(&plan),
            number: session.index as u64,
            node: 0,
            tally: Rc::clone(&tally),
            record: Rc::clone(&records[session.index]),
        };
        Box::pin(client.live(session))
    });
    worker.run(&mut Idle).unwrap();
    let slot = Slot::new(Shape::of_types(4));
    tally.borrow_mut().publish(&slot);
    let mut posted = Posted::new(Shape::of_types(4));
    slot.take(&mut posted);
    let records: Vec<SessionRecord> = records.iter().map(|record| record.borrow().clone()).collect();
    spec.finish(&records);
    let mut world = lock(&world);
    assert_eq!(control.failure(), None);
    let lost = control.lost.load(std::sync::atomic::Ordering::Relaxed);
    Left { end: world.now, posted, records, rows: std::mem::take(&mut world.model.rows), spec, lost }
}

/// What stands in the table is what the replayed records say may stand there.
fn check(seed: u64, left: &Left) {
    let table = table();
    let transactions: Vec<u64> = left.records.iter().map(|record| record.transactions).collect();
    let measured = &left.posted.measured;
    assert_eq!(measured.started, transactions.iter().sum::<u64>(), "seed {seed}");
    assert_eq!(
        measured.started,
        measured.transactions() + measured.failed(),
        "seed {seed}: started = committed + failed"
    );
    let writer = Writer { run: RUN, epoch: 1, spec: left.spec.clone(), transactions: Some(transactions) };
    let history = History::replay(&table, ROWS, vec![writer]).unwrap();
    let mut present = vec![false; history.rows_end() as usize];
    for (key, fields) in &left.rows {
        let row = table.row_of_key(key).unwrap_or_else(|| panic!("seed {seed}: a foreign key"));
        present[row as usize] = true;
        for (column, bytes) in fields.iter().enumerate() {
            let Judgement::Exact { version } = table.judge(row, column, bytes) else {
                panic!("seed {seed}: row {row} column {column} is torn")
            };
            let verdict = history.judge(row, column, version);
            assert_eq!(
                verdict,
                VersionVerdict::Acceptable,
                "seed {seed}: row {row} column {column} has {version}"
            );
            // A replay that accepts everything would prove nothing: a version nobody can have written must be refused.
            let foreign = Version::new(RUN, 3, 1 << 30);
            assert_eq!(history.judge(row, column, foreign), VersionVerdict::Foreign);
        }
    }
    for row in ROWS..history.rows_end() {
        match history.expects_row(row) {
            RowVerdict::Present => {
                assert!(present[row as usize], "seed {seed}: acknowledged row {row} is missing")
            }
            RowVerdict::Absent => {
                assert!(!present[row as usize], "seed {seed}: row {row} was never inserted")
            }
            RowVerdict::Either => {}
        }
    }
}

#[test]
fn calm_runs_commit_everything() {
    for seed in 0..20 {
        let left = simulate(seed, CALM, Pace::Closed);
        check(seed, &left);
        assert!(left.posted.measured.transactions() > 500, "seed {seed}");
        assert_eq!((left.posted.measured.failed(), left.lost), (0, 0));
        assert_eq!(left.posted.errors, []);
    }
}

#[test]
fn books_balance_through_every_storm() {
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let pace = if seed % 3 == 0 { Pace::Poisson { per_second: 400.0 } } else { Pace::Closed };
        let left = simulate(seed, STORM, pace);
        check(seed, &left);
        for error in &left.posted.errors {
            *seen.entry(error.sqlstate.to_string()).or_insert(0) += error.count;
        }
        *seen.entry("lost".into()).or_insert(0) += left.lost;
        *seen.entry("unknown".into()).or_insert(0) +=
            left.spec.outcomes.exceptions.iter().filter(|exception| !exception.failed).count() as u64;
    }
    for kind in ["40001", "53100", "lost", "unknown"] {
        assert!(seen.get(kind).copied().unwrap_or(0) > SEEDS, "{kind} hardly struck: {seen:?}");
    }
    // No read ever missed a row that had been acknowledged.
    assert_eq!(seen.get("02000"), None, "{seen:?}");
}

#[test]
fn one_seed_is_one_run() {
    for seed in [1, 2, 3] {
        let (first, second) = (simulate(seed, STORM, Pace::Closed), simulate(seed, STORM, Pace::Closed));
        assert_eq!(first.end, second.end);
        assert_eq!(first.records, second.records);
        assert_eq!(first.rows, second.rows);
        assert_eq!(first.posted.errors, second.posted.errors);
    }
}
