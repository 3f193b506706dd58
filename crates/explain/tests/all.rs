//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod advice;
mod fire;
mod scene;

mod behind;
mod beneath;
mod beyond;
mod calm;
mod clusters;
mod comparison;
mod field;
mod intervention;
mod manual;
mod mutex;
mod named;
mod pasted;
mod refusals;
mod rules;
mod shares;
mod sized;
mod standbys;
mod told;
mod typed;
mod unseen;
mod values;
mod whose;
