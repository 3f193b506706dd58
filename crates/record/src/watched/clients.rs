//! Lines about those that connect: who holds the connections of a server, and the pools of a pooler before it.

line! {
    /// Who holds the connections, busy or not; the largest groups. Recorded while many are open: from half of `max_connections` on, or a hundred.
    Connected, "connected" {
        /// The node.
        node: String,
        /// `application_name`.
        application: String,
        /// Their role.
        user: String,
        /// Their database.
        database: String,
        /// The address they come from; `local` for a Unix socket.
        client: String,
        /// How many.
        sessions: u64,
        /// Of these, outside of a transaction and without work.
        idle: u64,
        /// Of these, in a transaction and waiting for their client.
        idle_in_transaction: u64,
        /// For how long the idle ones have been idle: the middle one.
        idle_s: Option<f64>,
        /// The longest.
        idle_s_max: Option<f64>,
    }
}

line! {
    /// A pool of a pooler: the server connections that it gives to the clients of one role and database. Counts of its database stand in one of its pools.
    Pool, "pool" {
        /// The node behind it.
        node: String,
        /// Where the pooler is.
        pooler: String,
        /// The database, as the pooler calls it.
        database: String,
        /// The role of its clients.
        user: String,
        /// `session`, `transaction` or `statement`: when a client gives its connection back.
        pool_mode: String,
        /// Clients that have a server connection.
        clients_active: Option<u64>,
        /// Clients that wait for one.
        clients_waiting: Option<u64>,
        /// How long the first of them has waited.
        max_wait_us: Option<u64>,
        /// Server connections that clients have.
        servers_active: Option<u64>,
        /// Those that any client may get.
        servers_free: Option<u64>,
        /// How many it may open.
        size: Option<u64>,
        /// Whether this is a size of the database's own, and not `default_pool_size`.
        size_of_database: Option<bool>,
        /// How many connections all pools of the database may open together; absent without such a limit.
        database_max: Option<u64>,
        /// Whether the database is paused (PAUSE): the pooler lets no client begin.
        paused: Option<bool>,
        /// Transactions of the database in the interval.
        transactions: Option<u64>,
        /// Queries.
        queries: Option<u64>,
        /// Time that its clients had a server connection in a transaction.
        transaction_us: Option<u64>,
        /// Of this, time in which the server worked for a query.
        query_us: Option<u64>,
        /// Time that clients waited for a connection.
        wait_us: Option<u64>,
    }
}

line! {
    /// A pooler as a whole.
    Pooler, "pooler" {
        /// The node behind it.
        node: String,
        /// Where the pooler is.
        pooler: String,
        /// Its clients: ours too, and those of other nodes. Where its console is not read, they are counted by their sockets.
        clients: Option<u64>,
        /// How many it admits (`max_client_conn`).
        clients_max: Option<u64>,
        /// Connections that a pool may open by the file that it was started with (`default_pool_size`); only where its console is not read.
        size: Option<u64>,
        /// Clients that it sent away in the interval, by its log; absent where that cannot be read.
        refused: Option<u64>,
        /// The most frequent reason.
        reason: String,
    }
}

line! {
    /// The server processes of the sessions of one application and role, where they run on the host of the watch: the oldest sessions of a node.
    SessionMemory, "session_memory" {
        /// The node.
        node: String,
        /// The application, as its sessions call it.
        application: String,
        /// Their role.
        user: String,
        /// How many sessions were read.
        sessions: Option<u64>,
        /// What their processes have in memory and share with no other.
        private_bytes: Option<u64>,
        /// How long the longest statement has run that one of them is at work with.
        longest_statement_s: Option<f64>,
    }
}
