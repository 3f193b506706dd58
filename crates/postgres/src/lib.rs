//! The client of the control plane: blocking calls over `tokio-postgres`, which the thread that waits for an answer drives.
//!
//! The stream is given by the caller. So what a server may send, and for how long it may be silent, is limited below the library, over TCP and
//! over Unix sockets alike; a client that opens its own sockets offers no such place.

mod client;
mod connection;
mod query;
mod recent;
mod row;
mod sent;
mod transaction;

pub use client::{Client, CopyInWriter, GenericClient, OpenError, RowIter};
pub use query::{AsQuery, Query};
pub use recent::Recent;
pub use row::{Row, SimpleQueryMessage, SimpleRow, WrongReply};
pub use sent::sent_since;
pub use tokio_postgres::{Config, Error, IsolationLevel, Statement};
pub use tokio_postgres::{config, error, tls, types};
pub use transaction::{Transaction, TransactionBuilder};
