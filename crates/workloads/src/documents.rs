//! JSON documents from a few hundred bytes to tens of megabytes: inserted, read and updated.
//!
//! One table, `documents(doc_id, doc_version, body)`. The body is a pure function of seed, number and version, so that
//! a reader of a document can check whether it was written like that.

pub mod content;
mod dataset;
pub mod family;
mod history;
mod judge;
mod registration;
mod replay;
pub mod run;
pub mod size;
mod writer;

pub use dataset::Documents;
pub use registration::DATASET;
