//! Deterministic content: every value is a pure function of (seed, table, column, row, version).
