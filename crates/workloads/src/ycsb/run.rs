//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010) on the table of `data::ycsb`, and R0's simple
//! select and simple update.
//!
//! Every draw is a pure function of (seed, session, sequence, what the session itself has inserted), so the writes of a finished
//! run can be replayed from its numbers alone: verification knows which values may stand in the table without a log of updates.
//! A value that is written carries (run, session, sequence) inside itself.

use std::sync::Arc;

use data::Permutation;
use data::ycsb::{FIELD_BYTES, FIELD_COUNT, Table, Version};
use run::engine::link::Reply;
use run::engine::session::Session;
use run::random::Random;
use run::random::ranks::Zipfian;
use run::routing::Homes;
use run::script::QueryMode;
use run::statement::StatementSpec;
use run::workload::{Item, TransactionError, Try, Workload, succeeded};
use wire::backend::{rows_affected, tag};
use wire::frontend;

use super::dataset::TABLE;

/// YCSB's `maxscanlength`.
pub(crate) const SCAN_ROWS_MAX: u64 = 100;
/// What to type where its table is missing.
pub(super) const FILL: &str = "load it first: pgfathom load ycsb --rows 1M";
/// Draws of a key before the nearest row of the wanted node is taken instead. A node with a thousandth of the rows is missed so often
/// once in 20,000 transactions.
const DRAWS_MAX: u32 = 10_000;
/// Separates the stream that scatters popular ranks from the data crate's own uses of the seed.
const POPULARITY_STREAM: u64 = 0x7963_7362_2d68_6f74;

/// The operations of the YCSB core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One row, all fields, by key.
    Read,
    /// One field of one row, blindly.
    Update,
    /// A new row.
    Insert,
    /// Up to [`SCAN_ROWS_MAX`] rows in key order.
    Scan,
    /// A read, then an update of the same row, as two statements.
    ReadModifyWrite,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 5] = [Verb::Read, Verb::Update, Verb::Insert, Verb::Scan, Verb::ReadModifyWrite];

    /// The name in tables and charts.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Update => "update",
            Verb::Insert => "insert",
            Verb::Scan => "scan",
            Verb::ReadModifyWrite => "read-modify-write",
        }
    }

    /// It changes the table.
    pub fn writes(self) -> bool {
        !matches!(self, Verb::Read | Verb::Scan)
    }
}

/// How rows are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Every loaded row alike.
    Uniform,
    /// Popularity by Zipf's law with exponent 0.99, popular rows scattered over the table by a bijection.
    Zipfian,
    /// The newest rows are the most popular.
    Latest,
}

impl Distribution {
    /// The name users type.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest]
            .into_iter()
            .find(|distribution| distribution.name() == text)
            .ok_or(())
    }
}

/// A verb with its way of picking rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub verb: Verb,
    /// To which rows.
    pub distribution: Distribution,
}

/// The dataset as a run sees it, what is done to it, and the run's place among the writers of that dataset.
#[derive(Clone, Debug)]
pub struct Ycsb {
    /// The types of transactions, each with what it does.
    items: Vec<(Item, Operation)>,
    table: Table,
    /// Rows loaded: what reads and updates choose from.
    rows: u64,
    /// The first row number this run may insert.
    first_insert: u64,
    /// Sessions of the whole run: inserts are distributed over them.
    sessions: u64,
    /// The run's number among the dataset's writers; 0 when it writes nothing.
    run: u16,
    /// How statements are sent.
    mode: QueryMode,
    zipfian: Zipfian,
    popularity: Permutation,
    /// Sessions that draw only keys of one node.
    homes: Option<Arc<Homes>>,
    /// The schema of the table; `None`: the search path finds it.
    schema: Option<String>,
}

impl Ycsb {
    /// A run number `run` with `sessions` sessions over a table with `rows` loaded rows (at least one), inserting from row
    /// `first_insert` on. It does nothing until it is given operations.
    pub fn new(table: Table, rows: u64, first_insert: u64, sessions: u64, run: u16) -> Ycsb {
        assert!(rows > 0, "an empty table has no row to choose");
        let popularity = Permutation::new(table.spec().seed, POPULARITY_STREAM, rows);
        Ycsb {
            items: Vec::new(),
            table,
            rows,
            first_insert,
            sessions,
            run,
            mode: QueryMode::Prepared,
            zipfian: Zipfian::new(rows),
            popularity,
            homes: None,
            schema: None,
        }
    }

    /// The same with these operations besides, each a type of transaction.
    #[must_use]
    pub fn with_items(mut self, items: impl IntoIterator<Item = (Item, Operation)>) -> Ycsb {
        self.items.extend(items);
        self
    }

    /// What it does, in the order of its items.
    pub fn operations(&self) -> &[(Item, Operation)] {
        &self.items
    }

    /// It changes the table.
    pub fn writes(&self) -> bool {
        self.items.iter().any(|(item, operation)| operation.verb.writes() && item.weight > 0)
    }

    /// The same on the table in this schema, whatever the search path is.
    #[must_use]
    pub(super) fn with_schema(self, schema: &str) -> Ycsb {
        Ycsb { schema: Some(schema.to_owned()), ..self }
    }

    /// The same as run number `run` of the dataset's writers, inserting from row `first_insert` on.
    #[must_use]
    pub(super) fn with_run(self, run: u16, first_insert: u64) -> Ycsb {
        Ycsb { run, first_insert, ..self }
    }

    /// The same, with statements sent in this way instead of prepared ones.
    #[must_use]
    pub(super) fn with_mode(self, mode: QueryMode) -> Ycsb {
        Ycsb { mode, ..self }
    }

    /// How statements are sent.
    pub fn mode(&self) -> QueryMode {
        self.mode
    }

    /// The same, with sessions that draw only keys of their own nodes. Inserts are not held to it: their rows are counted through.
    #[must_use]
    pub(super) fn with_homes(self, homes: Option<Homes>) -> Ycsb {
        Ycsb { homes: homes.map(Arc::new), ..self }
    }

    /// Which session draws keys of which node, if they are held to nodes.
    pub fn homes(&self) -> Option<&Homes> {
        self.homes.as_deref()
    }

    /// The dataset's content.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Rows that reads and updates choose from.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The first row number the run may insert.
    pub(super) fn first_insert(&self) -> u64 {
        self.first_insert
    }

    /// Sessions of the whole run.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// The run's number among the dataset's writers.
    pub fn run(&self) -> u16 {
        self.run
    }

    /// The row number of a session's insert number `count` (from 0): in turn over all sessions, so that no two insert the same row.
    pub(crate) fn inserted_row(&self, session: u64, count: u64) -> u64 {
        self.first_insert + count * self.sessions + session
    }

    /// Which session inserts `row`, and as its how manieth insert; `None` for rows below the first insert.
    pub(crate) fn inserter_of(&self, row: u64) -> Option<(u64, u64)> {
        let offset = row.checked_sub(self.first_insert)?;
        Some((offset % self.sessions, offset / self.sessions))
    }

    /// Picks the row of an operation: a popular one of the session's own node, where it has one.
    #[inline]
    fn pick(&self, distribution: Distribution, session: &YcsbSession, random: &mut Random) -> u64 {
        match &self.homes {
            None => self.pick_anywhere(distribution, session, random),
            Some(homes) => self.pick_at_home(homes, distribution, session, random),
        }
    }

    /// Draws until a row of the session's node comes. Shares within the node stay as they are over all.
    fn pick_at_home(
        &self,
        homes: &Homes,
        distribution: Distribution,
        session: &YcsbSession,
        random: &mut Random,
    ) -> u64 {
        let is_home = |row: u64| homes.is_home(session.session, &self.table.key(row));
        let mut row = self.pick_anywhere(distribution, session, random);
        for _ in 1..DRAWS_MAX {
            if is_home(row) {
                return row;
            }
            row = self.pick_anywhere(distribution, session, random);
        }
        // A node with next to nothing: the row that follows. A node without any row was refused before the run.
        (0..self.rows).map(|step| (row + step) % self.rows).find(|row| is_home(*row)).unwrap_or(row)
    }

    /// Picks a row of the whole table. The newest ones are those that the session itself has inserted.
    #[inline]
    fn pick_anywhere(&self, distribution: Distribution, session: &YcsbSession, random: &mut Random) -> u64 {
        match distribution {
            Distribution::Uniform => random.below(self.rows),
            Distribution::Zipfian => self.popularity.apply(self.zipfian.sample(random)),
            Distribution::Latest => {
                let rank = self.zipfian.sample(random);
                match session.inserted.checked_sub(rank + 1) {
                    Some(count) if !session.has_failed(count) => self.inserted_row(session.session, count),
                    // A row that may not have arrived is not requested: a loaded one stands in for it.
                    Some(_) => self.rows - 1 - rank,
                    None => self.rows - 1 - (rank - session.inserted),
                }
            }
        }
    }

    /// Everything an operation needs, drawn in a fixed order: row, then column or length.
    #[inline]
    pub fn draw(&self, operation: Operation, session: &YcsbSession, random: &mut Random) -> Draw {
        let row = match operation.verb {
            Verb::Insert => self.inserted_row(session.session, session.inserted),
            _ => self.pick(operation.distribution, session, random),
        };
        match operation.verb {
            Verb::Update | Verb::ReadModifyWrite => {
                Draw { row, column: random.below(FIELD_COUNT as u64) as usize, scan_rows: 0 }
            }
            Verb::Scan => Draw { row, column: 0, scan_rows: random.below(SCAN_ROWS_MAX) + 1 },
            Verb::Read | Verb::Insert => Draw { row, column: 0, scan_rows: 0 },
        }
    }
}

/// The parameters of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Row number.
    pub row: u64,
    /// Field, for writes of one field.
    pub column: usize,
    /// Rows requested by a scan.
    pub scan_rows: u64,
}

/// What a session remembers: how many rows it has tried to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YcsbSession {
    session: u64,
    inserted: u64,
    /// Inserts that failed or whose outcome is not known, ascending: their rows need not be there.
    failed_inserts: Vec<u64>,
}

impl YcsbSession {
    /// Session number `session` of the whole run.
    pub fn new(session: u64) -> YcsbSession {
        YcsbSession { session, inserted: 0, failed_inserts: Vec::new() }
    }

    /// An insert was tried for the last time; a row that did not arrive is remembered.
    pub(crate) fn insert_ended(&mut self, arrived: bool) {
        if !arrived {
            self.failed_inserts.push(self.inserted);
        }
        self.inserted += 1;
    }

    fn has_failed(&self, count: u64) -> bool {
        self.failed_inserts.binary_search(&count).is_ok()
    }

    /// Inserts tried so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }
}

/// Places of the statements in [`statements`].
mod statement {
    pub(super) const READ: usize = 0;
    pub(super) const SCAN: usize = 1;
    pub(super) const INSERT: usize = 2;
    pub(super) const UPDATE_FIRST_FIELD: usize = 3;
}

/// The statements of all operations, laid out once per session.
fn statements(ycsb: &Ycsb) -> Vec<StatementSpec> {
    let table = match &ycsb.schema {
        Some(schema) => load::ledger::qualified(schema, TABLE),
        None => TABLE.to_owned(),
    };
    // Beside a script of the user the session has the user's search path, and another operator of that name could be found on it.
    let (equal, at_least) = match &ycsb.schema {
        Some(_) => ("OPERATOR(pg_catalog.=)", "OPERATOR(pg_catalog.>=)"),
        None => ("=", ">="),
    };
    let spec = |name: String, sql: String| StatementSpec {
        mode: ycsb.mode,
        fill: Some(FILL),
        is_always_prepared: false,
        ..StatementSpec::ours(name, sql)
    };
    let fields: Vec<String> = (0..FIELD_COUNT).map(|field| format!("field{field}")).collect();
    let parameters: Vec<String> = (1..=FIELD_COUNT + 1).map(|number| format!("${number}")).collect();
    let mut statements = vec![
        spec("ycsb_read".into(), format!("SELECT * FROM {table} WHERE ycsb_key {equal} $1")),
        spec(
            "ycsb_scan".into(),
            format!("SELECT * FROM {table} WHERE ycsb_key {at_least} $1 ORDER BY ycsb_key LIMIT $2"),
        ),
        spec(
            "ycsb_insert".into(),
            format!(
                "INSERT INTO {table} (ycsb_key, {}) VALUES ({})",
                fields.join(", "),
                parameters.join(", ")
            ),
        ),
    ];
    for field in fields {
        statements.push(spec(
            format!("ycsb_update_{field}"),
            format!("UPDATE {table} SET {field} = $1 WHERE ycsb_key {equal} $2"),
        ));
    }
    statements
}

impl Workload for Ycsb {
    type Session = YcsbSession;

    fn items(&self) -> Vec<Item> {
        self.items.iter().map(|(item, _)| item.clone()).collect()
    }

    fn statements(&self) -> Vec<StatementSpec> {
        statements(self)
    }

    fn session(&self, session: u64) -> Result<YcsbSession, String> {
        Ok(YcsbSession::new(session))
    }

    async fn transaction(
        &self,
        item: usize,
        state: &mut YcsbSession,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        operate(self, self.items[item].1, state, attempt).await
    }

    #[inline]
    fn ended(&self, item: usize, state: &mut YcsbSession, is_committed: bool) {
        if self.items[item].1.verb == Verb::Insert {
            state.insert_ended(is_committed);
        }
    }

    #[inline]
    fn inserted(&self, state: &YcsbSession) -> u64 {
        state.inserted()
    }
}

/// Runs one operation to its end.
async fn operate(
    ycsb: &Ycsb,
    operation: Operation,
    state: &YcsbSession,
    attempt: Try<'_>,
) -> Result<(), TransactionError> {
    let Try { session, templates, sequence, random } = attempt;
    let draw = ycsb.draw(operation, state, random);
    let key = ycsb.table.key(draw.row);
    if matches!(operation.verb, Verb::Read | Verb::ReadModifyWrite) {
        let found = execute(session, ycsb.mode, |out| {
            let mut execution = templates[statement::READ].begin(out);
            execution.raw(&key);
            execution.finish();
        })
        .await?;
        let expected =
            ycsb.inserter_of(draw.row).is_none_or(|(_, count)| !state.failed_inserts.contains(&count));
        if found != 1 && expected {
            return Err(missing(&key, found));
        }
    }
    match operation.verb {
        Verb::Read => Ok(()),
        Verb::Scan => {
            // How many rows a range holds is not known beforehand, but the row it starts at is there.
            let found = execute(session, ycsb.mode, |out| {
                let mut execution = templates[statement::SCAN].begin(out);
                execution.raw(&key);
                execution.integer(draw.scan_rows as i64);
                execution.finish();
            })
            .await?;
            if found == 0 { Err(missing(&key, found)) } else { Ok(()) }
        }
        Verb::Update | Verb::ReadModifyWrite => {
            let mut value = [0; FIELD_BYTES];
            let version = Version::new(ycsb.run, state.session as u16, sequence);
            ycsb.table.field(draw.row, draw.column, version, &mut value);
            let changed = execute(session, ycsb.mode, |out| {
                let mut execution = templates[statement::UPDATE_FIRST_FIELD + draw.column].begin(out);
                execution.raw(&value);
                execution.raw(&key);
                execution.finish();
            })
            .await?;
            if changed == 1 { Ok(()) } else { Err(missing(&key, changed)) }
        }
        Verb::Insert => {
            let version = Version::new(ycsb.run, state.session as u16, sequence);
            let added = execute(session, ycsb.mode, |out| {
                let mut execution = templates[statement::INSERT].begin(out);
                execution.raw(&key);
                let mut value = [0; FIELD_BYTES];
                for column in 0..FIELD_COUNT {
                    ycsb.table.field(draw.row, column, version, &mut value);
                    execution.raw(&value);
                }
                execution.finish();
            })
            .await?;
            if added == 1 { Ok(()) } else { Err(missing(&key, added)) }
        }
    }
}

fn missing(key: &[u8], rows: u64) -> TransactionError {
    TransactionError::RowMissing(format!(
        "expected one row with key {}, got {rows}",
        String::from_utf8_lossy(key)
    ))
}

/// Sends one execution and returns how many rows its command tag names.
#[inline]
async fn execute(
    session: &Session,
    mode: QueryMode,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<u64, TransactionError> {
    session.request(|out| {
        write(out);
        if mode != QueryMode::Simple {
            frontend::sync(out);
        }
    });
    let reply: Reply = session.reply().await?;
    succeeded(session, reply)?;
    Ok(session.with_frames(reply, |frames| {
        frames
            .filter(|frame| frame.tag == tag::COMMAND_COMPLETE)
            .filter_map(|frame| rows_affected(frame.body))
            .last()
            .unwrap_or(0)
    }))
}
