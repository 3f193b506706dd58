//! The file of a history: `history.bin` in the run directory, format 1.
//!
//! ```text
//! header  "PGFHIST1"  version u32  model u8  3 zeros                      16 bytes
//! block   kind u8  3 zeros  count u32  checksum u64  payload              16 + count records
//! ...
//! end     a block of kind 255 without payload
//! ```
//!
//! | block | record |
//! |---|---|
//! | 1 operations | txn u32, key u32, ver u32, statement u16, node u8, kind u8, tok u64, start_ns u64 = 32 bytes |
//! | 2 transactions | begin_ns u64, commit_sent_ns u64, end_ns u64, operations u32, session u32, node u8, outcome u8, isolation u8, sqlstate 5, notice 5, 3
//! zeros = 48 bytes |
//! | 3 elements of lists | u64 |
//! | 4 names | bytes of text: lines of `node`, `shard`, `key`, `value` with a name, or `place` with the number of a shard, separated by a tab; the last block
//! counts |
//!
//! Numbers are little-endian. A transaction comes after its operations and elements, in the same or a later block, so a file that a crash cut off is
//! complete up to its last complete block: the rest is ignored, and [`History::is_cut`] is true. A complete block with a wrong checksum
//! is damaged, which is an error.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use engines::profile::Isolation;

use super::{History, Kind, Model, Names, OPS_MAX, Op, Outcome, Txn};

/// The file's name in a run directory.
pub const FILE_NAME: &str = "history.bin";
/// The version that this module writes.
pub const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"PGFHIST1";
const HEADER_BYTES: usize = 16;
const OP_BYTES: usize = 32;
const TXN_BYTES: usize = 48;
const ELEMENT_BYTES: usize = 8;
/// A block is written at this size: the most that a crash of the program can lose.
const BLOCK_BYTES: usize = 256 * 1024;
/// No block of ours is longer; a header with a larger size is damaged, and no memory is allocated for it. Room for one transaction that reads long lists.
const BLOCK_BYTES_MAX: usize = 256 * 1024 * 1024;

const OPS: u8 = 1;
const TXNS: u8 = 2;
const ELEMENTS: u8 = 3;
const NAMES: u8 = 4;
const END: u8 = 255;

const KINDS: [Kind; 5] = [Kind::Read, Kind::Update, Kind::Write, Kind::Insert, Kind::Append];
const MODELS: [Model; 3] = [Model::VersionedRegister, Model::Append, Model::Register];
const OUTCOMES: [Outcome; 5] = [Outcome::Ok, Outcome::OkWeak, Outcome::Fail, Outcome::Info, Outcome::Partial];
const ISOLATIONS: [Option<Isolation>; 4] =
    [None, Some(Isolation::ReadCommitted), Some(Isolation::RepeatableRead), Some(Isolation::Serializable)];

/// Why a history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file itself.
    #[error("cannot {doing} {path}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// Not one of ours.
    #[error("{path} is not a history of pgfathom", path = path.display())]
    Magic {
        /// Which file.
        path: PathBuf,
    },
    /// A version that this program does not know.
    #[error("{path} has version {version} of the format, this program reads up to {VERSION}", path = path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// The text of the problem.
        version: u32,
    },
    /// The file is damaged.
    #[error("{path} is damaged at byte {offset}: {what}", path = path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the block begins.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A line of Elle's notation is malformed.
    #[error("line {line}: {what}")]
    Notation {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// More than the arrays can hold.
    #[error("a history of more than {OPS_MAX} operations cannot be checked")]
    TooLong,
}

impl HistoryError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            HistoryError::Magic { .. } | HistoryError::Io { doing: "open", .. } => Some(
                "name a history.bin of a run directory, or a history of Elle that ends in .edn, .json or .ndjson".into(),
            ),
            HistoryError::Version { .. } => Some("use the pgfathom that wrote it, or a newer one".into()),
            HistoryError::Notation { .. } => Some(
                "each operation is a map like {\"type\": \"ok\", \"process\": 0, \"value\": [[\"append\", 1, 2], [\"r\", 1, [2]]]}".into(),
            ),
            HistoryError::Io { .. } | HistoryError::Damaged { .. } | HistoryError::TooLong => None,
        }
    }
}

/// Writes a history while it happens.
#[derive(Debug)]
pub struct HistoryWriter {
    file: BufWriter<File>,
    path: PathBuf,
    ops: Vec<u8>,
    txns: Vec<u8>,
    elements: Vec<u8>,
    /// Transactions so far.
    count: u32,
    /// Elements so far, for the indexes in reads.
    elements_count: u64,
}

impl HistoryWriter {
    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// The system's error message.
    pub fn create(path: &Path, model: Model, names: &Names) -> Result<HistoryWriter, HistoryError> {
        let file = record::file::create(path).map_err(io_error("create", path))?;
        let mut writer = HistoryWriter {
            file: BufWriter::with_capacity(BLOCK_BYTES, file),
            path: path.to_owned(),
            ops: Vec::new(),
            txns: Vec::new(),
            elements: Vec::new(),
            count: 0,
            elements_count: 0,
        };
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([model_number(model), 0, 0, 0]);
        writer.write(&header)?;
        writer.block(NAMES, names_text(names).as_bytes(), 1)?;
        Ok(writer)
    }

    /// Adds a transaction that has ended. For a read list, `tok` counts from the beginning of `elements`.
    ///
    /// # Errors
    /// The system's error message.
    pub fn push(&mut self, txn: &Txn, ops: &[Op], elements: &[u64]) -> Result<(), HistoryError> {
        let base = self.elements_count;
        for op in ops {
            let is_list = !elements.is_empty() && op.kind == Kind::Read;
            let tok = if is_list { op.tok + base } else { op.tok };
            put_op(&mut self.ops, &Op { txn: self.count, tok, ..*op });
        }
        for element in elements {
            self.elements.extend(element.to_le_bytes());
        }
        self.elements_count += elements.len() as u64;
        put_txn(&mut self.txns, txn, ops.len() as u32);
        self.count += 1;
        if self.ops.len() + self.txns.len() + self.elements.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Names that were unknown at the start; they replace all earlier ones.
    ///
    /// # Errors
    /// The system's error message.
    pub fn name(&mut self, names: &Names) -> Result<(), HistoryError> {
        self.block(NAMES, names_text(names).as_bytes(), 1)
    }

    /// Writes everything so far to the operating system.
    ///
    /// # Errors
    /// The system's error message.
    pub fn flush(&mut self) -> Result<(), HistoryError> {
        let elements = std::mem::take(&mut self.elements);
        self.block(ELEMENTS, &elements, ELEMENT_BYTES)?;
        let ops = std::mem::take(&mut self.ops);
        self.block(OPS, &ops, OP_BYTES)?;
        let txns = std::mem::take(&mut self.txns);
        self.block(TXNS, &txns, TXN_BYTES)?;
        self.file.flush().map_err(io_error("write", &self.path))
    }

    /// Closes the history with an end block, which marks it as complete.
    ///
    /// # Errors
    /// The system's error message.
    pub fn finish(mut self) -> Result<(), HistoryError> {
        self.flush()?;
        let mut end = vec![END, 0, 0, 0, 0, 0, 0, 0];
        end.extend(checksum(&[]).to_le_bytes());
        self.write(&end)?;
        self.file.flush().map_err(io_error("write", &self.path))
    }

    fn block(&mut self, kind: u8, payload: &[u8], record: usize) -> Result<(), HistoryError> {
        // Only elements can exceed a block, if one transaction reads that much.
        for part in payload.chunks(BLOCK_BYTES_MAX / record * record) {
            let mut header = vec![kind, 0, 0, 0];
            header.extend(((part.len() / record) as u32).to_le_bytes());
            header.extend(checksum(part).to_le_bytes());
            self.write(&header)?;
            self.write(part)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), HistoryError> {
        self.file.write_all(bytes).map_err(io_error("write", &self.path))
    }
}

impl History {
    /// Reads a file of [`HistoryWriter`], complete or cut off.
    ///
    /// # Errors
    /// When it cannot be read, is not a history, or is damaged.
    pub fn read(path: &Path) -> Result<History, HistoryError> {
        let file = File::open(path).map_err(io_error("open", path))?;
        History::read_from(BufReader::with_capacity(BLOCK_BYTES, file), path)
    }

    /// Reads a history of either kind: a file of [`HistoryWriter`], or one in Elle's notation, with any name.
    ///
    /// # Errors
    /// As [`History::read`]; the error names a malformed line of Elle's notation.
    pub fn open(path: &Path) -> Result<History, HistoryError> {
        let mut file = File::open(path).map_err(io_error("open", path))?;
        let mut start = [0; 8];
        let got = fill(&mut file, &mut start).map_err(io_error("read", path))?;
        if start == *MAGIC {
            return History::read(path);
        }
        let first = start[..got].iter().find(|byte| !byte.is_ascii_whitespace());
        // A byte order mark, comments and tags may stand before the first map or list.
        let is_notation = first.is_none_or(|byte| b"{[(;#\xef".contains(byte));
        if !is_notation {
            return Err(HistoryError::Magic { path: path.to_owned() });
        }
        super::elle::read(start[..got].chain(file))
    }

    /// The same from any bytes; `path` is for messages.
    ///
    /// # Errors
    /// As [`History::read`].
    pub fn read_from(mut source: impl Read, path: &Path) -> Result<History, HistoryError> {
        let mut header = [0; HEADER_BYTES];
        let got = fill(&mut source, &mut header).map_err(io_error("read", path))?;
        if got < HEADER_BYTES || &header[..8] != MAGIC {
            return Err(HistoryError::Magic { path: path.to_owned() });
        }
        let version = u32_at(&header, 8);
        if version == 0 || version > VERSION {
            return Err(HistoryError::Version { path: path.to_owned(), version });
        }
        let Some(model) = MODELS.into_iter().find(|model| model_number(*model) == header[12]) else {
            return Err(damaged(path, 12, format!("there is no model {}", header[12])));
        };
        let mut reader = Reader { history: History::new(model), pending: Vec::new() };
        reader.history.is_cut = true;
        let mut offset = HEADER_BYTES as u64;
        let mut payload = Vec::new();
        loop {
            if fill(&mut source, &mut header).map_err(io_error("read", path))? < HEADER_BYTES {
                break;
            }
            let (kind, count) = (header[0], u32_at(&header, 4) as usize);
            let record = match kind {
                OPS => OP_BYTES,
                TXNS => TXN_BYTES,
                ELEMENTS => ELEMENT_BYTES,
                NAMES => 1,
                END => 0,
                _ => return Err(damaged(path, offset, format!("there is no block of kind {kind}"))),
            };
            let bytes = count * record;
            if bytes > BLOCK_BYTES_MAX {
                return Err(damaged(path, offset, format!("a block of {bytes} bytes")));
            }
            payload.clear();
            let got = (&mut source).take(bytes as u64).read_to_end(&mut payload);
            if got.map_err(io_error("read", path))? < bytes {
                break;
            }
            if checksum(&payload) != u64_at(&header, 8) {
                return Err(damaged(path, offset, "the checksum does not match".into()));
            }
            match kind {
                END => {
                    reader.history.is_cut = !reader.pending.is_empty();
                    break;
                }
                OPS => reader.ops(&payload),
                TXNS => reader.txns(&payload),
                ELEMENTS => {
                    let elements = payload.chunks_exact(ELEMENT_BYTES).map(|bytes| u64_at(bytes, 0));
                    reader.history.elements.extend(elements);
                    Ok(())
                }
                _ => names_from(&payload).map(|names| reader.history.names = names),
            }
            .map_err(|what| damaged(path, offset, what))?;
            offset += (HEADER_BYTES + bytes) as u64;
        }
        if let Some(op) = reader.history.read_outside() {
            let what = format!("transaction {} reads elements that do not exist", op.txn);
            return Err(damaged(path, offset, what));
        }
        Ok(reader.history)
    }

    /// A read of elements that the history does not have.
    fn read_outside(&self) -> Option<&Op> {
        let is_outside = |op: &&Op| {
            op.kind == Kind::Read
                && op.tok.checked_add(u64::from(op.ver)).is_none_or(|end| end > self.elements.len() as u64)
        };
        self.ops.iter().find(is_outside).filter(|_| self.model == Model::Append)
    }

    /// Writes it completely to a new file.
    ///
    /// # Errors
    /// The system's error message.
    pub fn write(&self, path: &Path) -> Result<(), HistoryError> {
        let mut writer = HistoryWriter::create(path, self.model, &self.names)?;
        let mut elements = Vec::new();
        let mut ops = Vec::new();
        for (number, txn) in self.txns.iter().enumerate() {
            ops.clear();
            elements.clear();
            for op in self.ops_of(number as u32) {
                let mut op = *op;
                if self.model == Model::Append && op.kind == Kind::Read {
                    // The writer counts from the first element of the transaction; an empty list may have any index.
                    let list = self.list(&op);
                    op.tok = if list.is_empty() { 0 } else { elements.len() as u64 };
                    elements.extend_from_slice(list);
                }
                ops.push(op);
            }
            writer.push(txn, &ops, &elements)?;
        }
        if self.is_cut { writer.flush() } else { writer.finish() }
    }
}

/// What has been read so far.
struct Reader {
    history: History,
    /// Operations whose transaction has not come yet.
    pending: Vec<Op>,
}

impl Reader {
    fn ops(&mut self, payload: &[u8]) -> Result<(), String> {
        if !self.history.has_room(0, self.pending.len() + payload.len() / OP_BYTES) {
            return Err(HistoryError::TooLong.to_string());
        }
        for bytes in payload.chunks_exact(OP_BYTES) {
            let kind = KINDS.get(usize::from(bytes[15]));
            self.pending.push(Op {
                txn: u32_at(bytes, 0),
                key: u32_at(bytes, 4),
                ver: u32_at(bytes, 8),
                statement: u16::from_le_bytes([bytes[12], bytes[13]]),
                node: bytes[14],
                kind: *kind.ok_or_else(|| format!("there is no operation of kind {}", bytes[15]))?,
                tok: u64_at(bytes, 16),
                start_ns: u64_at(bytes, 24),
            });
        }
        Ok(())
    }

    fn txns(&mut self, payload: &[u8]) -> Result<(), String> {
        let mut taken = 0usize;
        for bytes in payload.chunks_exact(TXN_BYTES) {
            let number = self.history.txns.len() as u32;
            let count = u32_at(bytes, 24) as usize;
            let ops = self.pending.get(taken..taken.saturating_add(count));
            let Some(ops) = ops.filter(|ops| ops.iter().all(|op| op.txn == number)) else {
                return Err(format!("the operations of transaction {number} are not the ones before it"));
            };
            if !self.history.has_room(1, count) {
                return Err(HistoryError::TooLong.to_string());
            }
            self.history.txns.push(txn_from(bytes)?);
            self.history.ops.extend_from_slice(ops);
            self.history.first.push(self.history.ops.len() as u32);
            taken += count;
        }
        self.pending.drain(..taken);
        Ok(())
    }
}

fn put_op(out: &mut Vec<u8>, op: &Op) {
    out.extend(op.txn.to_le_bytes());
    out.extend(op.key.to_le_bytes());
    out.extend(op.ver.to_le_bytes());
    out.extend(op.statement.to_le_bytes());
    out.extend([op.node, place(&KINDS, op.kind)]);
    out.extend(op.tok.to_le_bytes());
    out.extend(op.start_ns.to_le_bytes());
}

fn put_txn(out: &mut Vec<u8>, txn: &Txn, ops: u32) {
    for time in [txn.begin_ns, txn.commit_sent_ns, txn.end_ns] {
        out.extend(time.to_le_bytes());
    }
    out.extend(ops.to_le_bytes());
    out.extend(txn.session.to_le_bytes());
    out.extend([txn.node, place(&OUTCOMES, txn.outcome), place(&ISOLATIONS, txn.isolation)]);
    out.extend(txn.sqlstate);
    out.extend(txn.notice);
    out.extend([0; 3]);
}

fn txn_from(bytes: &[u8]) -> Result<Txn, String> {
    let code = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]];
    let outcome = OUTCOMES.get(usize::from(bytes[33]));
    let isolation = ISOLATIONS.get(usize::from(bytes[34]));
    Ok(Txn {
        begin_ns: u64_at(bytes, 0),
        commit_sent_ns: u64_at(bytes, 8),
        end_ns: u64_at(bytes, 16),
        session: u32_at(bytes, 28),
        node: bytes[32],
        outcome: *outcome.ok_or_else(|| format!("there is no outcome {}", bytes[33]))?,
        isolation: *isolation.ok_or_else(|| format!("there is no isolation level {}", bytes[34]))?,
        sqlstate: code(35),
        notice: code(40),
    })
}

/// The number of a variant in the file.
fn place<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().position(|other| *other == one).map_or(0, |at| at as u8)
}

fn model_number(model: Model) -> u8 {
    // From 1: a file of zeros is not a history.
    place(&MODELS, model) + 1
}

fn names_text(names: &Names) -> String {
    let mut text = String::new();
    let mut put = |what: &str, name: &str| {
        let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("{what}\t{name}\n"));
    };
    names.nodes.iter().for_each(|name| put("node", name));
    names.shards.iter().for_each(|name| put("shard", name));
    names.shard_of_key.iter().for_each(|shard| put("place", &shard.to_string()));
    names.keys.iter().for_each(|name| put("key", name));
    names.values.iter().for_each(|name| put("value", name));
    text
}

fn names_from(bytes: &[u8]) -> Result<Names, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "names that are not text".to_string())?;
    let mut names = Names::default();
    for line in text.lines() {
        let (what, name) = line.split_once('\t').ok_or_else(|| format!("no name in {line:?}"))?;
        match what {
            "node" => names.nodes.push(name.to_owned()),
            "shard" => names.shards.push(name.to_owned()),
            "place" => {
                names.shard_of_key.push(name.parse().map_err(|_| format!("no shard in {line:?}"))?);
            }
            "key" => names.keys.push(name.to_owned()),
            "value" => names.values.push(name.to_owned()),
            // What a later version may add.
            _ => {}
        }
    }
    Ok(names)
}

/// FNV-1a over words of eight bytes: it detects damage by a disk or a copy, not forgery.
fn checksum(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let words = bytes.chunks_exact(8);
    for byte in words.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    for word in words {
        hash = (hash ^ u64_at(word, 0)).wrapping_mul(PRIME);
        hash ^= hash >> 32;
    }
    hash
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Reads until the buffer is full or the input ends; returns the length.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> HistoryError + 'a {
    move |source| HistoryError::Io { doing, path: path.to_owned(), source }
}

fn damaged(path: &Path, offset: u64, what: String) -> HistoryError {
    HistoryError::Damaged { path: path.to_owned(), offset, what }
}
