//! `run -b documents` and `run -b documents-tx`: documents read, updated and inserted, each statement a transaction of its own, or several of
//! them between BEGIN and COMMIT.
//!
//! The two show what autocommit costs where a commit is expensive: a synchronous replica, several nodes, a slow disk. Every answer is awaited
//! before the next statement is sent, as applications do. COMMIT of a transaction of several statements is timed separately.

use record::Latency;
use run::audit::{Audits, Sums};
use run::engine::Nanos;
use run::engine::link::Reply;
use run::engine::session::Session;
use run::random::Random;
use run::statement::StatementSpec;
use run::workload::{Item, TransactionError, Try, Workload};
use serde::{Deserialize, Serialize};
use wire::backend::{Columns, tag};
use wire::prepared::Template;

use super::content::Documents;
use crate::request::{ask, expect_commit, expect_rows};

/// The name of the dataset, of its table and of the workload in autocommit.
pub(super) const NAME: &str = "documents";
/// The workload with explicit transactions.
pub(super) const NAME_TX: &str = "documents-tx";
/// Percent of statements that read, and that update; the others insert.
const READ_PERCENT: u64 = 50;
const UPDATE_PERCENT: u64 = 30;
/// Versions that updates draw from: those of an `int`.
const VERSION_MAX: u64 = i32::MAX as u64;
/// What fills the table.
pub(super) const FILL: &str = "fill it first: pgfathom load documents";

/// A run inserts fewer documents than this power of two; a load makes fewer, too.
pub(super) const INSERTED_BITS: u32 = 40;

/// The first number that a run of the ledger inserts: each has a range of its own, so two runs at once never insert the same document.
pub(super) fn first_insert(run_no: u16) -> u64 {
    u64::from(run_no) << INSERTED_BITS
}

/// Places of the statements.
mod statement {
    pub(super) const READ: usize = 0;
    pub(super) const UPDATE: usize = 1;
    pub(super) const INSERT: usize = 2;
    pub(super) const BEGIN: usize = 3;
    pub(super) const COMMIT: usize = 4;
}

/// What a statement does to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Read,
    Update,
    Insert,
}

/// What a type of transactions does. Ledgers have it in this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// One statement in autocommit.
    Alone(Verb),
    /// So many statements between BEGIN and COMMIT.
    Together(u64),
}

/// The workload.
#[derive(Clone, Debug)]
pub struct DocumentsRun {
    pub(super) schema: String,
    pub(super) documents: Documents,
    pub(super) draws: Draws,
    pub(super) items: Vec<(Item, Kind)>,
}

/// What the draws of a run depend on, beside its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draws {
    /// The first loaded document, and how many there are.
    pub(super) first: u64,
    pub(super) count: u64,
    /// The first number that the run may insert.
    pub(super) first_insert: u64,
    pub(super) sessions: u64,
}

/// What a session keeps between transactions.
#[derive(Clone, Debug)]
pub struct DocumentsSession {
    session: u64,
    /// Documents that it has tried to insert, and those of the transaction under way.
    inserted: u64,
    inserting: u64,
    /// Statements of the transaction under way: document, what is done, the version that is written.
    statements: Vec<(u64, Verb, u64)>,
    /// Text of a document.
    text: Vec<u8>,
    done: Traffic,
}

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    read: u64,
    read_bytes: u64,
    written: u64,
    written_bytes: u64,
    commit: Option<Nanos>,
}

impl DocumentsSession {
    /// Session number `session` of the whole run.
    pub(super) fn new(session: u64) -> DocumentsSession {
        DocumentsSession {
            session,
            inserted: 0,
            inserting: 0,
            statements: Vec::new(),
            text: Vec::new(),
            done: Traffic::default(),
        }
    }

    /// The documents that the transaction under way writes, each with the version that it leaves: its last one.
    pub(super) fn left(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let is_last =
            |at: usize| self.statements.get(at + 1).is_none_or(|next| next.0 != self.statements[at].0);
        let write = move |(at, &(document, verb, version)): (usize, &(u64, Verb, u64))| {
            (verb != Verb::Read && is_last(at)).then_some((document, version as u32))
        };
        self.statements.iter().enumerate().filter_map(write)
    }

    /// A transaction has had its last try. A number whose insert failed stays unused: no number is inserted twice.
    #[inline]
    pub(super) fn ended(&mut self) {
        self.inserted += std::mem::take(&mut self.inserting);
    }
}

impl Draws {
    /// Draws what a transaction does. Documents come in ascending order: two transactions that update the same ones wait for each other, and
    /// never in a circle. The order of draws is part of what ledgers have about a run: another one needs another
    /// [`WriterSpec`](super::replay::WriterSpec).
    #[inline]
    pub(super) fn draw(&self, kind: Kind, state: &mut DocumentsSession, random: &mut Random) {
        state.statements.clear();
        state.inserting = 0;
        let count = match kind {
            Kind::Alone(_) => 1,
            Kind::Together(count) => count,
        };
        for _ in 0..count {
            let verb = match kind {
                Kind::Alone(verb) => verb,
                Kind::Together(_) => match random.below(100) {
                    percent if percent < READ_PERCENT => Verb::Read,
                    percent if percent < READ_PERCENT + UPDATE_PERCENT => Verb::Update,
                    _ => Verb::Insert,
                },
            };
            let loaded = self.first + random.below(self.count);
            let version = 1 + random.below(VERSION_MAX);
            let document = match verb {
                Verb::Read | Verb::Update => loaded,
                Verb::Insert => {
                    state.inserting += 1;
                    let number = state.inserted + state.inserting - 1;
                    self.first_insert + number * self.sessions + state.session
                }
            };
            state.statements.push((document, verb, version));
        }
        state.statements.sort_unstable();
    }
}

impl DocumentsRun {
    async fn statement(
        &self,
        (session, templates): (&Session, &[Template]),
        state: &mut DocumentsSession,
        (document, verb, version): (u64, Verb, u64),
        begins: bool,
    ) -> Result<(), TransactionError> {
        state.text.clear();
        if verb != Verb::Read {
            self.documents.write(document, version as u32, &mut state.text);
            state.done.written += 1;
            state.done.written_bytes += state.text.len() as u64;
        }
        let text = &state.text;
        let place = match verb {
            Verb::Read => statement::READ,
            Verb::Update => statement::UPDATE,
            Verb::Insert => statement::INSERT,
        };
        let reply = ask(session, templates, |request| {
            if begins {
                request.command(statement::BEGIN);
            }
            request.execute(place, |execution| {
                execution.integer(document as i64);
                if verb != Verb::Read {
                    execution.integer(version as i64);
                    execution.raw(text);
                }
            });
        })
        .await?;
        let rows = [None, Some(1)];
        expect_rows(session, reply, if begins { &rows } else { &rows[1..] }, "the document")?;
        if verb == Verb::Read {
            state.done.read += 1;
            state.done.read_bytes += found(session, reply, document)?;
        }
        Ok(())
    }
}

/// Bytes of the document that was read, which must carry the requested number, and the version in the column beside it.
fn found(session: &Session, reply: Reply, document: u64) -> Result<u64, TransactionError> {
    session.with_frames(reply, |mut frames| {
        let row = frames.find(|frame| frame.tag == tag::DATA_ROW);
        let mut columns = row.and_then(|frame| Columns::new(frame.body).ok());
        let mut next = || columns.as_mut().and_then(|columns| columns.next_column().ok().flatten().flatten());
        let (version, body) = (next().unwrap_or_default(), next().unwrap_or_default());
        match names(body, document, version) {
            true => Ok(body.len() as u64),
            false => Err(TransactionError::RowMissing(format!(
                "the content of document {document} is not what was written"
            ))),
        }
    })
}

/// Whether a document begins with its number and version.
fn names(body: &[u8], document: u64, version: &[u8]) -> bool {
    let number = |text: &[u8]| {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold((0u64, 0usize), |(value, length), digit| {
            (value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')), length + 1)
        })
    };
    let Some(rest) = body.strip_prefix(b"{\"id\": ") else { return false };
    let (id, length) = number(rest);
    let Some(rest) = rest[length..].strip_prefix(b", \"rev\": ") else { return false };
    let (revision, length) = number(rest);
    length > 0 && id == document && revision == number(version).0
}

impl Workload for DocumentsRun {
    type Session = DocumentsSession;

    fn items(&self) -> Vec<Item> {
        self.items.iter().map(|(item, _)| item.clone()).collect()
    }

    fn statements(&self) -> Vec<StatementSpec> {
        let table = load::ledger::qualified(&self.schema, NAME);
        let texts = [
            ("read", format!("SELECT doc_version::text, body::text FROM {table} WHERE doc_id = $1")),
            (
                "update",
                format!("UPDATE {table} SET doc_version = $2, body = $3::text::jsonb WHERE doc_id = $1"),
            ),
            (
                "insert",
                format!("INSERT INTO {table} (doc_id, doc_version, body) VALUES ($1, $2, $3::text::jsonb)"),
            ),
            ("begin", "BEGIN".to_owned()),
            ("commit", "COMMIT".to_owned()),
        ];
        let spec = |(name, sql): (&str, String)| StatementSpec {
            fill: Some(FILL),
            ..StatementSpec::ours(format!("{NAME}_{name}"), sql)
        };
        texts.map(spec).into()
    }

    fn session(&self, session: u64) -> Result<DocumentsSession, String> {
        Ok(DocumentsSession::new(session))
    }

    async fn transaction(
        &self,
        item: usize,
        state: &mut DocumentsSession,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        let Try { session, templates, random, .. } = attempt;
        let kind = self.items[item].1;
        self.draws.draw(kind, state, random);
        state.done = Traffic::default();
        let is_block = matches!(kind, Kind::Together(_));
        for at in 0..state.statements.len() {
            let what = state.statements[at];
            self.statement((session, templates), state, what, is_block && at == 0).await?;
        }
        if is_block {
            let requested = session.now();
            let reply = ask(session, templates, |request| request.command(statement::COMMIT)).await?;
            state.done.commit = Some(session.now() - requested);
            expect_commit(session, reply)?;
        }
        Ok(())
    }

    #[inline]
    fn ended(&self, _: usize, state: &mut DocumentsSession, _: bool) {
        state.ended();
    }

    #[inline]
    fn audit(&self, _: usize, state: &DocumentsSession, _: Option<Nanos>, audits: &mut Audits) {
        let sums = audits.entry::<Documented>();
        let done = &state.done;
        sums.read += done.read;
        sums.read_bytes += done.read_bytes;
        sums.written += done.written;
        sums.written_bytes += done.written_bytes;
        if let Some(commit) = done.commit {
            sums.commits.get_or_insert_default().record_ns(commit);
        }
    }

    fn inserted(&self, state: &DocumentsSession) -> u64 {
        state.inserted
    }
}

/// What was read and written.
#[derive(Clone, Debug, Default)]
pub(super) struct Documented {
    pub(super) read: u64,
    pub(super) read_bytes: u64,
    pub(super) written: u64,
    pub(super) written_bytes: u64,
    /// Time of COMMIT in transactions of several statements. Made when it is first needed.
    pub(super) commits: Option<Box<Latency>>,
}

impl Sums for Documented {
    fn add(&mut self, other: &Documented) {
        self.read += other.read;
        self.read_bytes += other.read_bytes;
        self.written += other.written;
        self.written_bytes += other.written_bytes;
        if let Some(theirs) = other.commits.as_deref().filter(|latency| !latency.is_empty()) {
            self.commits.get_or_insert_default().merge(theirs);
        }
    }

    fn reset(&mut self) {
        (self.read, self.read_bytes, self.written, self.written_bytes) = (0, 0, 0, 0);
        if let Some(commits) = self.commits.as_deref_mut().filter(|latency| !latency.is_empty()) {
            commits.reset();
        }
    }
}

/// The types of transactions of the requested mix.
pub(super) fn items(mix: &[(&'static str, u64)], statements: u64) -> Vec<(Item, Kind)> {
    let mut items = Vec::new();
    for (name, weight) in mix {
        let mut item = |what: &str, percent: u64, kind: Kind| {
            items.push((Item { name: format!("{name}.{what}"), weight: weight * percent }, kind));
        };
        if *name == NAME_TX {
            item("batch", 100, Kind::Together(statements));
            continue;
        }
        item("read", READ_PERCENT, Kind::Alone(Verb::Read));
        item("update", UPDATE_PERCENT, Kind::Alone(Verb::Update));
        item("insert", 100 - READ_PERCENT - UPDATE_PERCENT, Kind::Alone(Verb::Insert));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::size::Sizes;

    fn workload(statements: u64) -> DocumentsRun {
        DocumentsRun {
            schema: "public".into(),
            documents: Documents::new(1, Sizes::new(300, 900).expect("sizes")),
            draws: Draws { first: 1, count: 50, first_insert: 51, sessions: 3 },
            items: items(&[(NAME, 1), (NAME_TX, 2)], statements),
        }
    }

    #[test]
    fn transactions_update_in_ascending_order_and_insert_numbers_of_their_own() {
        let workload = workload(20);
        let mut inserted = Vec::new();
        for number in 0..3 {
            let mut state = workload.session(number).expect("a session");
            for sequence in 0..50 {
                let mut random = Random::for_transaction(1, number, sequence);
                workload.draws.draw(Kind::Together(20), &mut state, &mut random);
                assert_eq!(state.statements.len(), 20);
                assert!(state.statements.is_sorted());
                for (document, verb, version) in &state.statements {
                    assert_eq!(*document > 50, *verb == Verb::Insert);
                    assert!((1..=VERSION_MAX).contains(version));
                    inserted.extend((*document > 50).then_some(*document));
                }
                workload.ended(3, &mut state, true);
            }
        }
        let count = inserted.len();
        inserted.sort_unstable();
        inserted.dedup();
        assert_eq!(inserted.len(), count, "no number is inserted twice");
    }

    #[test]
    fn runs_of_one_ledger_insert_into_ranges_of_their_own() {
        let (first, second) = (first_insert(1), first_insert(2));
        assert!(first > 1_000_000_000_000 && second - first > 1_000_000_000_000);
        let last = first_insert(load::ledger::RUN_NO_MAX as u16) + (1 << INSERTED_BITS);
        assert!(i64::try_from(last).is_ok(), "doc_id is a bigint");
    }

    #[test]
    fn a_document_is_known_by_its_number_and_version() {
        let workload = workload(1);
        let mut text = Vec::new();
        workload.documents.write(7, 12, &mut text);
        assert!(names(&text, 7, b"12"));
        assert!(!names(&text, 8, b"12") && !names(&text, 7, b"1") && !names(&text, 7, b"0"));
        assert!(!names(b"", 7, b"12") && !names(b"{\"id\": 7}", 7, b""));
    }

    #[test]
    fn both_ways_share_a_mix_by_their_weights() {
        let weights: Vec<(String, u64)> =
            workload(10).items().into_iter().map(|item| (item.name, item.weight)).collect();
        let named = |name: &str, weight: u64| (name.to_owned(), weight);
        assert_eq!(
            weights,
            [
                named("documents.read", 50),
                named("documents.update", 30),
                named("documents.insert", 20),
                named("documents-tx.batch", 200)
            ]
        );
    }
}
