//! Tests of `check`.
