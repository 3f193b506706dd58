//! Tests of `check`.

mod database;
mod manual;
