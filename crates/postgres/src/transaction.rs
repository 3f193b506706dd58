//! Transactions: without a commit they are rolled back.

use tokio_postgres::{Error, IsolationLevel};

use crate::connection::Connection;

/// A transaction that is under way.
pub struct Transaction<'a> {
    pub(crate) connection: &'a mut Connection,
    /// `None` only once it has ended.
    pub(crate) transaction: Option<tokio_postgres::Transaction<'a>>,
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Transaction<'_> {
    /// Keeps what it did.
    pub fn commit(mut self) -> Result<(), Error> {
        match self.transaction.take() {
            Some(transaction) => self.connection.block_on(transaction.commit()),
            None => Ok(()),
        }
    }

    /// Forgets it.
    pub fn rollback(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.transaction.take() {
            Some(transaction) => self.connection.block_on(transaction.rollback()),
            None => Ok(()),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A transaction that is described before it begins.
pub struct TransactionBuilder<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) builder: tokio_postgres::TransactionBuilder<'a>,
}

impl std::fmt::Debug for TransactionBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionBuilder").finish_non_exhaustive()
    }
}

impl<'a> TransactionBuilder<'a> {
    /// With this isolation.
    pub fn isolation_level(mut self, level: IsolationLevel) -> Self {
        self.builder = self.builder.isolation_level(level);
        self
    }

    /// Reading only.
    pub fn read_only(mut self, is: bool) -> Self {
        self.builder = self.builder.read_only(is);
        self
    }

    /// Begins it.
    pub fn start(self) -> Result<Transaction<'a>, Error> {
        let transaction = self.connection.block_on(self.builder.start())?;
        Ok(Transaction { connection: self.connection, transaction: Some(transaction) })
    }
}
