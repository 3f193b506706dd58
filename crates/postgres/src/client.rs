//! A session and its queries.

use std::io::{self, Write};
use std::pin::Pin;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, CopyInSink, Error, NoTls, RowStream, Statement};

use crate::connection::{self, Connection};
use crate::query::{AsQuery, Query};
use crate::recent::Recent;
use crate::row::{Row, SimpleQueryMessage};
use crate::transaction::{Transaction, TransactionBuilder};

/// A session. Dropping it ends it as the protocol wants it.
pub struct Client {
    connection: Connection,
    client: tokio_postgres::Client,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may already have ended; then there is nothing to report.
        self.client.__private_api_close();
        self.connection.finish();
    }
}

/// Why there is no session.
#[derive(Debug)]
pub enum OpenError {
    /// There is no stream.
    Io(io::Error),
    /// The startup failed.
    Startup(Error),
}

impl Client {
    /// Opens a session over a stream, which `open` makes within the session's runtime.
    pub fn open<S, T>(
        config: &Config,
        tls: T,
        open: impl FnOnce() -> io::Result<S>,
    ) -> Result<Client, OpenError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: TlsConnect<S>,
        T::Stream: Send + 'static,
    {
        let runtime = connection::runtime().map_err(OpenError::Io)?;
        let stream = {
            let _guard = runtime.enter();
            open().map_err(OpenError::Io)?
        };
        let (client, connection) =
            runtime.block_on(config.connect_raw(stream, tls)).map_err(OpenError::Startup)?;
        Ok(Client { connection: Connection::new(runtime, connection), client })
    }

    /// Opens a session without TLS and without any limit: for servers of one's own, in tests. It stands for another program: its texts are not kept. The words
    /// are libpq's; the host is a folder of sockets or an address.
    pub fn connect(words: &str) -> Result<Client, Error> {
        let mut config: Config = words.parse()?;
        config.ssl_mode(SslMode::Disable);
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let late = |_| Error::__private_api_timeout();
        let opened = match config.get_hosts().first() {
            Some(Host::Unix(folder)) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                let stream = std::os::unix::net::UnixStream::connect(path).map_err(late)?;
                Client::open(&config, NoTls, || {
                    stream.set_nonblocking(true)?;
                    tokio::net::UnixStream::from_std(stream)
                })
            }
            host => {
                let name = match host {
                    Some(Host::Tcp(name)) => name.as_str(),
                    _ => "localhost",
                };
                let stream = std::net::TcpStream::connect((name, port)).map_err(late)?;
                Client::open(&config, NoTls, || {
                    stream.set_nonblocking(true)?;
                    tokio::net::TcpStream::from_std(stream)
                })
            }
        };
        let unnoted = |mut client: Client| {
            client.connection.is_noted = false;
            client
        };
        opened.map(unnoted).map_err(|error| match error {
            // The library offers no other way to make an error.
            OpenError::Io(error) => late(error),
            OpenError::Startup(error) => error,
        })
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Begins a transaction.
    pub fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        let transaction = self.connection.block_on(self.client.transaction())?;
        Ok(Transaction { connection: &mut self.connection, transaction: Some(transaction) })
    }

    /// Describes a transaction before it begins.
    pub fn build_transaction(&mut self) -> TransactionBuilder<'_> {
        TransactionBuilder { connection: &mut self.connection, builder: self.client.build_transaction() }
    }

    /// Runs a query whose rows are read one by one.
    pub fn query_raw(&mut self, query: &str, params: &[&(dyn ToSql + Sync)]) -> Result<RowIter<'_>, Error> {
        self.connection.note(query);
        let rows = if params.is_empty() {
            self.connection
                .block_on(self.client.query_typed_raw(query, std::iter::empty::<(&str, Type)>()))?
        } else {
            self.connection.block_on(self.client.query_raw(query, params.iter().copied()))?
        };
        Ok(RowIter { connection: &mut self.connection, rows: Box::pin(rows) })
    }

    /// Copies into a table what is written.
    pub fn copy_in(&mut self, query: &str) -> Result<CopyInWriter<'_>, Error> {
        let sink = self.connection.block_on(self.client.copy_in(query))?;
        Ok(CopyInWriter { connection: &mut self.connection, sink: Box::pin(sink) })
    }
}

/// Rows that come one by one.
pub struct RowIter<'a> {
    connection: &'a mut Connection,
    rows: Pin<Box<RowStream>>,
}

impl std::fmt::Debug for RowIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowIter").finish_non_exhaustive()
    }
}

impl RowIter<'_> {
    /// The next row, if there is one.
    pub fn next_row(&mut self) -> Result<Option<Row>, Error> {
        let rows = &mut self.rows;
        Ok(self.connection.block_on(async { rows.next().await.transpose() })?.map(Row::from))
    }
}

/// Takes what is copied into a table. Without [`CopyInWriter::finish`], nothing of it stays.
pub struct CopyInWriter<'a> {
    connection: &'a mut Connection,
    sink: Pin<Box<CopyInSink<io::Cursor<Vec<u8>>>>>,
}

impl std::fmt::Debug for CopyInWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyInWriter").finish_non_exhaustive()
    }
}

impl CopyInWriter<'_> {
    /// Ends the copying; gives the rows.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.connection.block_on(self.sink.as_mut().finish())
    }
}

impl Write for CopyInWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = io::Cursor::new(bytes.to_vec());
        self.connection.block_on(self.sink.send(piece)).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.block_on(self.sink.flush()).map_err(io::Error::other)
    }
}

/// An answer of the library, whose texts need not be UTF-8, as one whose texts can be read.
trait Readable<T> {
    fn readable(self) -> T;
}

impl Readable<u64> for u64 {
    fn readable(self) -> u64 {
        self
    }
}

impl Readable<()> for () {
    fn readable(self) {}
}

impl Readable<Statement> for Statement {
    fn readable(self) -> Statement {
        self
    }
}

impl Readable<Row> for tokio_postgres::Row {
    fn readable(self) -> Row {
        self.into()
    }
}

impl Readable<Option<Row>> for Option<tokio_postgres::Row> {
    fn readable(self) -> Option<Row> {
        self.map(Row::from)
    }
}

impl Readable<Vec<Row>> for Vec<tokio_postgres::Row> {
    fn readable(self) -> Vec<Row> {
        self.into_iter().map(Row::from).collect()
    }
}

impl Readable<Vec<SimpleQueryMessage>> for Vec<tokio_postgres::SimpleQueryMessage> {
    fn readable(self) -> Vec<SimpleQueryMessage> {
        self.into_iter().map(SimpleQueryMessage::from).collect()
    }
}

/// Values of a statement's parameters.
type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What a session and a transaction have in common.
pub trait GenericClient {
    /// Runs a statement; gives the rows it changed.
    fn execute<T: ?Sized + AsQuery>(&mut self, query: &T, params: Params<'_>) -> Result<u64, Error>;

    /// Runs a query.
    fn query<T: ?Sized + AsQuery>(&mut self, query: &T, params: Params<'_>) -> Result<Vec<Row>, Error>;

    /// Runs a query that gives one row.
    fn query_one<T: ?Sized + AsQuery>(&mut self, query: &T, params: Params<'_>) -> Result<Row, Error>;

    /// Runs a query that gives one row or none.
    fn query_opt<T: ?Sized + AsQuery>(&mut self, query: &T, params: Params<'_>)
    -> Result<Option<Row>, Error>;

    /// Prepares a statement.
    fn prepare(&mut self, query: &str) -> Result<Statement, Error>;

    /// Runs statements by the simple protocol.
    fn simple_query(&mut self, query: &str) -> Result<Vec<SimpleQueryMessage>, Error>;

    /// Runs statements whose rows do not matter.
    fn batch_execute(&mut self, query: &str) -> Result<(), Error>;

    /// What the session has found out lately.
    fn recent(&mut self) -> &mut Recent;
}

/// The same calls, of a session and of a transaction: as methods of their own, and as those of the trait. What is generic in them ends with the kind of
/// query: the futures are compiled here, and not again in every crate that sends one.
macro_rules! calls {
    ($type:ty, |$this:ident| $inner:expr) => {
        calls!(
            $type,
            |$this| $inner,
            [
                /// Runs a statement; gives the rows it changed.
                execute by execute_as, alone execute_typed -> u64,
                /// Runs a query.
                query by query_as, alone query_typed -> Vec<Row>,
                /// Runs a query that gives one row.
                query_one by query_one_as, alone query_typed_one -> Row,
                /// Runs a query that gives one row or none.
                query_opt by query_opt_as, alone query_typed_opt -> Option<Row>,
            ],
            [
                /// Prepares a statement.
                prepare -> Statement,
                /// Runs statements by the simple protocol.
                simple_query -> Vec<SimpleQueryMessage>,
                /// Runs statements whose rows do not matter.
                batch_execute -> (),
            ]
        );
    };
    (
        $type:ty, |$this:ident| $inner:expr,
        [$($(#[$about:meta])* $call:ident by $call_as:ident, alone $alone:ident -> $output:ty,)*],
        [$($(#[$text_about:meta])* $text_call:ident -> $text_output:ty,)*]
    ) => {
        impl $type {
            $(
                $(#[$about])*
                pub fn $call<T: ?Sized + AsQuery>(
                    &mut self,
                    query: &T,
                    params: Params<'_>,
                ) -> Result<$output, Error> {
                    self.$call_as(query.as_query(), params)
                }

                fn $call_as(&mut self, query: Query<'_>, params: Params<'_>) -> Result<$output, Error> {
                    let $this = self;
                    if let Query::Text(text) = query {
                        $this.connection.note(text);
                    }
                    match query {
                        // There are no types to ask the server for, so it is one round trip and not two: a verb asks some dozens of such
                        // questions before it begins.
                        Query::Text(text) if params.is_empty() => {
                            $this.connection.block_on($inner.$alone(text, &[]))
                        }
                        Query::Text(text) => $this.connection.block_on($inner.$call(text, params)),
                        Query::Prepared(statement) => {
                            $this.connection.block_on($inner.$call(statement, params))
                        }
                    }
                    .map(Readable::readable)
                }
            )*
            $(
                $(#[$text_about])*
                pub fn $text_call(&mut self, query: &str) -> Result<$text_output, Error> {
                    let $this = self;
                    $this.connection.note(query);
                    $this.connection.block_on($inner.$text_call(query)).map(Readable::readable)
                }
            )*
        }

        impl GenericClient for $type {
            $(
                fn $call<T: ?Sized + AsQuery>(
                    &mut self,
                    query: &T,
                    params: Params<'_>,
                ) -> Result<$output, Error> {
                    self.$call(query, params)
                }
            )*
            $(
                fn $text_call(&mut self, query: &str) -> Result<$text_output, Error> {
                    self.$text_call(query)
                }
            )*

            fn recent(&mut self) -> &mut Recent {
                &mut self.connection.recent
            }
        }
    };
}

calls!(Client, |this| this.client);
calls!(Transaction<'_>, |this| this.transaction.as_ref().expect("it has not ended"));
