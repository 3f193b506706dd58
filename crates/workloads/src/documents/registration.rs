//! The table of documents in the list of datasets.

use data::ycsb::Spec;
use load::dataset::Dataset;

use super::dataset::{Documents, of_flags};
use super::history;
use super::run::NAME;
use super::size::{Sizes, SizesError};
use crate::dataset::{Flag, Flags, Registration, Request, Size};

/// The flag for the size of documents.
const SIZE_FLAG: &str = "document-size";
/// What the command knows of it.
pub const DATASET: Registration = Registration {
    name: NAME,
    about: "JSON documents (jsonb) of 1 kB to 20 MB in the table documents(doc_id, doc_version, body)",
    size: Size::Rows,
    takes: &[],
    flags: &[Flag {
        name: SIZE_FLAG,
        value_name: "SIZE",
        help: "documents: size of a document, as 20MB, or a range, as 1kB..20MB, in which each doubling is equally frequent [default: 1kB..20MB]",
    }],
    example: "pgfathom load documents --rows 10k --document-size 1kB..1MB DBNAME",
    examples: &["documents --rows 10k --document-size 1kB..1MB DBNAME"],
    scale_unit: None,
    build,
    recorded,
    replay: Some(history::replay),
};

fn build(request: &Request) -> Result<Box<dyn Dataset>, load::LoadError> {
    let sizes = match request.flags.get(SIZE_FLAG) {
        None => Sizes::DEFAULT,
        Some(text) => text.parse().map_err(|error: SizesError| load::LoadError::Option {
            flag: "--document-size",
            problem: error.to_string(),
            hint: "write 20MB, 64kB or a range as 1kB..20MB".to_owned(),
        })?,
    };
    let rows = match (request.rows, request.bytes) {
        (Some(rows), _) => rows,
        (None, bytes) => bytes.unwrap_or_default().div_ceil(sizes.mean()).max(1),
    };
    Ok(Box::new(Documents::new(rows, request.seed, sizes)))
}

fn recorded(spec: &Spec, flags: &Flags) -> Option<Box<dyn Dataset>> {
    Some(Box::new(of_flags(spec, flags)?))
}
