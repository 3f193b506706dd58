//! Deterministic content: every value is a pure function of (seed, table, column, row, version).
//!
//! A loader, a driver and a verifier that share nothing but a [`ycsb::Spec`] agree on every byte of a petabyte, because
//! the bytes are computed and never stored. That only holds while the functions here stay as they are: together they are
//! **format v1**, frozen by golden vectors. A change that alters one byte needs a new [`FORMAT_VERSION`].
//!
//! The rules that keep it frozen: integers only (libm differs between machines, so no floats), arithmetic modulo 2^64,
//! little-endian bytes, and no generator from a library, whose next release could differ.
//!
//! | module | holds |
//! |---|---|
//! | [`Permutation`] | a keyed bijection of [0, domain): keys of rows, scrambled ranks |
//! | [`ycsb`] | the YCSB table: keys, fields, versions inside fields, judgement of bytes found in a database |
//! | [`tpcc`] | the nine tables of TPC-C, and the constants of its non-uniform random numbers |

pub mod mix;
mod permutation;
pub mod tpcc;
pub mod ycsb;

pub use permutation::Permutation;
// Every dataset has these.
pub use ycsb::{Compressible, CompressibleError, KeyOrder, Spec, Version};

/// The version of the dataset format made by this crate; part of a dataset's identity.
pub const FORMAT_VERSION: u32 = 1;
