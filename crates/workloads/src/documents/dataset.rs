//! The table of documents as a dataset.

use std::ops::Range;
use std::sync::Arc;

use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::hash;
use load::dataset::{
    Audit, Auditor, Dataset, Encoder, Expected, Numbers, Parameter, Placed, Placement, Table, Verdicts,
};
use load::verify::VerifyError;
use wire::copy::values::Tuples;

use super::content::{Documents as Content, Pieces};
use super::judge;
use super::replay::{Existence, History};
use super::run::NAME;
use super::size::Sizes;
use crate::dataset::Flags;

/// The name of the sizes in the ledger.
pub(super) const SIZE_PARAMETER: &str = "document size";

/// Those that the ledger describes.
pub(super) fn of_flags(spec: &Spec, flags: &Flags) -> Option<Documents> {
    let rows = flags.get("rows")?.parse().ok()?;
    Some(Documents::new(rows, spec.seed, flags.get(SIZE_PARAMETER)?.parse().ok()?))
}

/// The first byte of a jsonb in binary form: its version.
const JSONB_VERSION: u8 = 1;

/// Bytes of a row beside its document's text: number, version, and the version of jsonb.
const FRAME_BYTES: u64 = 8 + 4 + 1;

/// So many documents.
#[derive(Clone, Debug)]
pub struct Documents {
    content: Content,
    sizes: Sizes,
    spec: Spec,
    tables: [Table; 1],
    /// What runs have written; `None`: it is not known, or there was no run.
    history: Option<Arc<History>>,
}

impl Documents {
    /// Of these sizes.
    pub fn new(rows: u64, seed: u64, sizes: Sizes) -> Documents {
        let table = Table {
            name: "documents",
            rows,
            columns: vec![
                ("doc_id", "bigint not null"),
                ("doc_version", "int not null"),
                ("body", "jsonb not null"),
            ],
            key: Some("doc_id"),
            named_by: None,
            index: None,
            placement: Placement::Hash { column: "doc_id", kind: "bigint" },
            mutable: &[],
            fillfactor: None,
        };
        let spec = Spec { seed, key_order: KeyOrder::Sequential, compressible: Compressible::NONE };
        Documents { content: Content::new(seed, sizes), sizes, spec, tables: [table], history: None }
    }

    /// The same after what runs have written.
    #[must_use]
    pub(super) fn after(self, history: Arc<History>) -> Documents {
        Documents { history: Some(history), ..self }
    }

    /// The text of each document.
    pub fn content(&self) -> Content {
        self.content
    }
}

impl Dataset for Documents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { what: "rows", flag: "--rows", value: self.tables[0].rows.to_string() },
            Parameter { what: SIZE_PARAMETER, flag: "--document-size", value: self.sizes.to_string() },
        ]
    }

    fn row_bytes(&self) -> u64 {
        FRAME_BYTES + self.content.mean_bytes()
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        for row in rows {
            let hash = hash::int8_extended(row as i64 + 1, hash::PARTITION_SEED);
            placed.push(0, hash, FRAME_BYTES + self.content.bytes(row + 1));
        }
    }

    fn key(&self, row: u64) -> String {
        (row + 1).to_string()
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        let message = Message::new(message_bytes);
        Box::new(DocumentEncoder { content: self.content, message, rest: None })
    }

    fn number(&self, _: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        let id = i64::from_be_bytes((*found.first()?)?.try_into().ok()?);
        u64::try_from(id).ok()?.checked_sub(1)
    }

    fn number_sql(&self, _: usize) -> String {
        "doc_id - 1".to_owned()
    }

    fn expect(&self, _: usize, number: u64, found: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        let version = version_of(found);
        // What is negative differs from the version that is expected.
        let is_loaded = version == 0 && number < self.tables[0].rows;
        out.begin(3);
        out.int8(number as i64 + 1);
        out.int4(version as i32);
        out.written(|out| {
            out.push(JSONB_VERSION);
            self.content.write(number + 1, version, out);
        });
        let is_unknown = number >= self.tables[0].rows
            && self
                .history
                .as_ref()
                .is_some_and(|known| known.existence(number + 1) == Existence::Impossible);
        match (is_loaded, is_unknown) {
            (true, _) => Expected::Loaded,
            (false, true) => Expected::NoRow,
            (false, false) => Expected::Written,
        }
    }

    fn is_read_after_runs(&self) -> bool {
        self.history.is_some()
    }

    fn judge_written(
        &self,
        _: usize,
        number: u64,
        found: &[Option<&[u8]>],
        verdicts: &mut dyn Verdicts,
    ) -> bool {
        let Some(history) = &self.history else { return true };
        judge::judge(history, number, number < self.tables[0].rows, version_of(found), verdicts)
    }

    fn audit(&self, auditor: &mut dyn Auditor) -> Result<Audit, VerifyError> {
        self.history.as_ref().map_or_else(|| Ok(Audit::default()), |known| judge::audit(known, auditor))
    }
}

/// The version in a row. A negative one is never written: it differs from the one that is expected.
fn version_of(found: &[Option<&[u8]>]) -> u32 {
    let version = found.get(1).copied().flatten().and_then(|bytes| bytes.try_into().ok());
    u32::try_from(version.map_or(0, i32::from_be_bytes)).unwrap_or(0)
}

/// One CopyData message, cut wherever it is full: the protocol does not care where rows end.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    limit: usize,
    rows: u64,
}

/// Bytes in front of the payload.
const HEAD: [u8; 5] = [b'd', 0, 0, 0, 0];

impl Message {
    fn new(limit: usize) -> Message {
        let mut bytes = Vec::with_capacity(limit + 2 * 1024);
        bytes.extend_from_slice(&HEAD);
        Message { bytes, limit, rows: 0 }
    }
}

/// Encodes documents piece by piece: one of 20 MB needs no more memory than one of 1 kB.
struct DocumentEncoder {
    content: Content,
    message: Message,
    /// What is left of the document in hand.
    rest: Option<Pieces>,
}

impl Encoder for DocumentEncoder {
    fn fill(&mut self, rows: &mut Numbers<'_>) {
        while !self.is_full() {
            if let Some(pieces) = &mut self.rest {
                if !pieces.next_into(&mut self.message.bytes) {
                    self.rest = None;
                    self.message.rows += 1;
                }
                continue;
            }
            let Some(row) = rows.next() else { return };
            let (id, out) = (row + 1, &mut self.message.bytes);
            let text_bytes = self.content.bytes(id);
            out.extend_from_slice(&3i16.to_be_bytes());
            out.extend_from_slice(&8i32.to_be_bytes());
            out.extend_from_slice(&(id as i64).to_be_bytes());
            out.extend_from_slice(&4i32.to_be_bytes());
            out.extend_from_slice(&0i32.to_be_bytes());
            out.extend_from_slice(&(1 + text_bytes as i32).to_be_bytes());
            out.push(JSONB_VERSION);
            self.rest = Some(self.content.text(id, 0));
        }
    }

    fn is_full(&self) -> bool {
        self.message.bytes.len() >= self.message.limit
    }

    fn is_empty(&self) -> bool {
        self.message.bytes.len() == HEAD.len() && self.message.rows == 0
    }

    fn rows(&self) -> u64 {
        self.message.rows
    }

    fn message(&mut self) -> &[u8] {
        let length = (self.message.bytes.len() - 1) as i32;
        self.message.bytes[1..HEAD.len()].copy_from_slice(&length.to_be_bytes());
        &self.message.bytes
    }

    fn clear(&mut self) {
        self.message.bytes.truncate(HEAD.len());
        self.message.rows = 0;
    }

    fn reset(&mut self) {
        self.clear();
        self.rest = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_put_together_are_the_rows_one_after_the_other() {
        let documents = Documents::new(9, 3, "300..200kB".parse().expect("sizes"));
        let mut encoder = documents.encoder(4_096);
        let (mut sent, mut rows, mut numbers) = (Vec::new(), 0, Numbers::range(0..9));
        loop {
            encoder.fill(&mut numbers);
            let is_full = encoder.is_full();
            if !encoder.is_empty() {
                rows += encoder.rows();
                let message = encoder.message();
                assert!(message.len() < 4_096 + 2_048, "{}", message.len());
                assert_eq!(
                    i32::from_be_bytes(message[1..5].try_into().expect("four")) as usize,
                    message.len() - 1
                );
                sent.extend_from_slice(&message[5..]);
                encoder.clear();
            }
            if !is_full {
                break;
            }
        }
        let mut expected = Tuples::new(1 << 20);
        (0..9).for_each(|number| {
            assert_eq!(documents.expect(0, number, &[], &mut expected), Expected::Loaded);
        });
        assert_eq!(rows, 9);
        assert!(sent == expected.payload(), "{} and {} bytes", sent.len(), expected.payload().len());
        let mut placed_bytes = 0;
        for id in 1..=9 {
            placed_bytes += FRAME_BYTES + documents.content.bytes(id);
        }
        assert_eq!(placed_bytes, expected.value_bytes());
    }

    #[test]
    fn a_document_says_which_version_it_is() {
        let documents = Documents::new(5, 3, "300".parse().expect("sizes"));
        let found = |version: i32| version.to_be_bytes();
        let mut out = Tuples::new(1);
        let expect = |number, version: i32, out: &mut Tuples| {
            documents.expect(0, number, &[None, Some(&found(version)), None], out)
        };
        assert_eq!(expect(4, 0, &mut out), Expected::Loaded);
        assert_eq!(expect(4, 2, &mut out), Expected::Written);
        assert_eq!(expect(5, 0, &mut out), Expected::Written, "inserted by a run");
    }
}
