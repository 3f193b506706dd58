//! PostgreSQL on this machine: its binaries, and clusters made from them.

mod error;
mod installation;
pub(crate) mod process;

pub use error::LocalError;
pub use installation::{Installation, Search, Version, find_installations, installations};
pub(crate) use process::OsUser;
pub use process::StopMode;
