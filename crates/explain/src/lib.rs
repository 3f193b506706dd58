//! Run directory to findings. Stands on `record` alone, so that an old, a partial or a foreign directory is explained as far as it goes.

pub mod statistics;
