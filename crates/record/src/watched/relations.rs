//! Lines about tables, statements and the server's own view of its I/O.

line! {
    /// A table of one database, once a minute: the largest and the busiest.
    Table, "table" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// Schema and name.
        relation: String,
        /// Its heap with free space map and TOAST, by `relpages` (no file is read).
        bytes: Option<u64>,
        /// Its indexes, likewise.
        index_bytes: Option<u64>,
        /// Estimated rows.
        live_rows: Option<u64>,
        /// Estimated dead rows.
        dead_rows: Option<u64>,
        /// Rows inserted in the interval.
        rows_inserted: Option<u64>,
        /// Rows updated.
        rows_updated: Option<u64>,
        /// Of these, without new index entries.
        rows_hot_updated: Option<u64>,
        /// Of `rows_updated`, those whose new version went to another page, for lack of room in their own (16).
        rows_newpage_updated: Option<u64>,
        /// Rows deleted.
        rows_deleted: Option<u64>,
        /// Sequential scans.
        seq_scans: Option<u64>,
        /// Rows they read.
        seq_rows: Option<u64>,
        /// Index scans.
        index_scans: Option<u64>,
        /// Automatic vacuums in the interval.
        autovacuums: Option<u64>,
        /// Vacuums by command.
        vacuums: Option<u64>,
        /// Rows that the planner assumes (`reltuples`); absent if the table was never counted.
        planned_rows: Option<u64>,
        /// Rows inserted, updated or deleted since the last ANALYZE (`n_mod_since_analyze`).
        changed_since_analyze: Option<u64>,
        /// Runs of ANALYZE so far, automatic ones included; since the last reset of the statistics.
        analyzes_total: Option<u64>,
        /// Since the last of them.
        analyzed_s: Option<f64>,
        /// Since the last vacuum, automatic ones included.
        vacuumed_s: Option<f64>,
        /// Pages that are known to be visible to all transactions, of all, as the planner knows it (`relallvisible`): index-only scans skip them.
        all_visible_share: Option<f64>,
        /// Whether autovacuum may work on it (`autovacuum_enabled` of the table).
        autovacuum: Option<bool>,
        /// Storage parameters of the table for autovacuum, as `name=value`.
        autovacuum_options: String,
        /// Blocks of its heap and indexes found in shared buffers.
        blocks_hit: Option<u64>,
        /// Blocks of them that had to be read.
        blocks_read: Option<u64>,
        /// Rows fetched by index scans.
        index_rows: Option<u64>,
        /// How many indexes it has.
        indexes: Option<u64>,
        /// Their columns, those of expressions and conditions included: `index(column, column)`, separated by `; `. Without those that a heap-only update may
        /// leave as they are (BRIN, 16).
        index_columns: String,
        /// Its indexes that are not valid, because their creation failed or goes on: names, separated by `; `.
        invalid_indexes: String,
        /// Its indexes of 64 pages or more that are not unique and that nothing has read since the counters began: `index (method)`, separated by `; `.
        unscanned_indexes: String,
        /// Indexes that most of the other partitions have and this one has not, separated by `; `: their columns, and how many of them have it, as
        /// `machine, at: 11 of 11`.
        sibling_indexes: String,
        /// Unique indexes of one column whose default comes from a sequence: `index(column) from schema.sequence`, quoted, separated by `; `.
        key_sequences: String,
        /// The table that it is a partition of; empty if of none.
        partition_of: String,
        /// Its bound as a partition, cut after 200 characters: `FOR VALUES ...`, or `DEFAULT`; empty if it is none.
        partition_bound: String,
        /// `fillfactor`; absent at the default of 100.
        fillfactor: Option<u64>,
        /// Columns with a number of distinct values that was declared: `column n_distinct=-1`, separated by `; `.
        column_options: String,
        /// Triggers that users made.
        triggers: Option<u64>,
        /// Their names with the functions that they call: `trigger(function)`, separated by `; `.
        trigger_functions: String,
        /// Those of them whose functions send NOTIFY, likewise.
        notifying_triggers: String,
        /// Tables that its own foreign keys refer to, as they are quoted, separated by `; `.
        foreign_keys: String,
        /// How many parts the table has that it is a part of, as the catalog has it: partitions beside each other, or shards on all nodes.
        parts: Option<u64>,
        /// Foreign keys that refer to it from columns without an index: deleting a row scans the other table.
        unindexed_references: Option<u64>,
        /// Transactions since its oldest row that is not frozen.
        frozen_age_xids: Option<u64>,
        /// Whether it has a primary key.
        primary_key: Option<bool>,
        /// `default`, `full`, `index` or `nothing`.
        replica_identity: String,
        /// Whether a publication holds it.
        published: Option<bool>,
        /// Where its heap lies.
        tablespace: String,
        /// Where its indexes lie: names, separated by commas.
        index_tablespaces: String,
    }
}

line! {
    /// What one statement cost in the interval (`pg_stat_statements`, `pg_stat_kcache`). Its text is in one event `query`.
    Statement, "statement" {
        /// The node.
        node: String,
        /// Database.
        database: String,
        /// `queryid`.
        query_id: String,
        /// Whether it only runs inside of other statements: in functions and triggers (14, with `pg_stat_statements.track = all`).
        nested: Option<bool>,
        /// Executions.
        calls: Option<u64>,
        /// Time executing.
        total_ms: Option<f64>,
        /// Time planning.
        plan_ms: Option<f64>,
        /// Time of just-in-time compilation (15).
        jit_ms: Option<f64>,
        /// Rows.
        rows: Option<u64>,
        /// Blocks read into shared buffers.
        shared_read: Option<u64>,
        /// Blocks found there.
        shared_hit: Option<u64>,
        /// Blocks of temporary files written.
        temp_written: Option<u64>,
        /// WAL.
        wal_bytes: Option<u64>,
        /// Full page images in it (13).
        wal_fpi: Option<u64>,
        /// CPU (`pg_stat_kcache`).
        cpu_ms: Option<f64>,
    }
}

line! {
    /// The statements of an interval that have no line of their own, because others cost more, or because their entries were thrown away.
    StatementRest, "statement_rest" {
        /// The node.
        node: String,
        /// How many entries of `pg_stat_statements` they are.
        entries: u64,
        /// Their executions.
        calls: u64,
        /// Their time executing.
        total_ms: Option<f64>,
        /// How often the extension threw entries away, because there were more than `pg_stat_statements.max` (PostgreSQL 14).
        evictions: Option<u64>,
    }
}

line! {
    /// A function of users that was called in the interval (`pg_stat_user_functions`); only with `track_functions`.
    Function, "function" {
        /// The node.
        node: String,
        /// Its database.
        database: String,
        /// Its name with the types of its arguments.
        function: String,
        /// Calls.
        calls: Option<u64>,
        /// Time in it, with the functions that it calls and its statements.
        total_ms: Option<f64>,
        /// Time in it, without other functions that are counted.
        self_ms: Option<f64>,
    }
}

line! {
    /// A row of `pg_stat_io` that moved in the interval (16).
    Io, "io" {
        /// The node.
        node: String,
        /// Backend type.
        backend: String,
        /// `relation`, `temp relation`, `wal`.
        object: String,
        /// `normal`, `vacuum`, `bulkread`, `bulkwrite`, `init`.
        context: String,
        /// Reads.
        reads: Option<u64>,
        /// Bytes read.
        read_bytes: Option<u64>,
        /// Time reading; absent without `track_io_timing`.
        read_ms: Option<f64>,
        /// Writes.
        writes: Option<u64>,
        /// Bytes written.
        write_bytes: Option<u64>,
        /// Time writing.
        write_ms: Option<f64>,
        /// Files made longer.
        extends: Option<u64>,
        /// fsync calls.
        fsyncs: Option<u64>,
        /// Time in them.
        fsync_ms: Option<f64>,
    }
}
