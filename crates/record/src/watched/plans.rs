//! Lines about plans: what the server would do for a statement, without running it, and what a change would make of it. The whole plan is in the folder
//! `plans` of the run directory.

line! {
    /// A plan of a statement, once for each shape.
    Plan, "plan" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// `queryid`.
        query_id: String,
        /// A function that the statement calls, or that a trigger of its table calls, whose own statement this is the plan of, because it costs far
        /// more; empty:
        /// the plan is that of the statement itself.
        function: String,
        /// The text of that statement.
        inner: String,
        /// A hash of its shape: nodes, tables, indexes and conditions, but no estimates.
        hash: String,
        /// How it was made: `generic` (with parameters instead of values).
        how: String,
        /// Planner's cost of the whole statement.
        cost_total: Option<f64>,
        /// Rows that the planner expects it to return or change.
        rows_planned: Option<f64>,
        /// Nodes of the plan.
        nodes: Option<u64>,
        /// Scans of partitions below one Append, the most.
        partitions: Option<u64>,
        /// Partitions that are left out when it runs, as EXPLAIN shows it for unknown values.
        partitions_removed: Option<u64>,
        /// Shards that the statement goes to, on engines that split it up.
        tasks: Option<u64>,
        /// `jit_above_cost` of the server; absent if it is off.
        jit_above_cost: Option<f64>,
        /// How long planning it took here (ms), by EXPLAIN; absent before PostgreSQL 10.
        planning_ms: Option<f64>,
        /// `work_mem` of the server.
        work_mem_bytes: Option<u64>,
    }
}

line! {
    /// A node of a plan.
    PlanNode, "plan_node" {
        /// The node of the cluster.
        node: String,
        /// `queryid`.
        query_id: String,
        /// Hash of its plan.
        hash: String,
        /// Its number in the plan, from 1 at the top, as EXPLAIN prints them.
        number: u64,
        /// The number of the node above it; 0 at the top.
        above: u64,
        /// `Seq Scan`, `Nested Loop`, ...
        kind: String,
        /// Whether it is a subquery or WITH of the node above (InitPlan, SubPlan), and no input of it; absent if not.
        subquery: Option<bool>,
        /// Schema and table, quoted.
        relation: String,
        /// The name of the table in conditions of this plan.
        alias: String,
        /// The index that it uses.
        index: String,
        /// Condition that is checked for each row; constants are hidden.
        filter: String,
        /// Condition of the index or the join; constants are hidden.
        condition: String,
        /// What a foreign server is sent for it; constants are hidden.
        remote: String,
        /// The name of that server.
        foreign_server: String,
        /// Rows that are sent to it together.
        batch_size: Option<u64>,
        /// How it joins, unless both sides must have the row: `Left`, `Right`, `Full`, `Semi`, `Anti`, ...
        join: String,
        /// Workers that are planned below it; absent where there are none. What the nodes below have is for each process.
        workers: Option<u64>,
        /// Of an outer join: no column of the side that may be absent is read above it.
        adds_nothing: Option<bool>,
        /// Rows that the planner expects from it.
        rows_planned: Option<f64>,
        /// Bytes of such a row.
        width_bytes: Option<u64>,
        /// Planner's cost, with all below it.
        cost_total: Option<f64>,
        /// Rows of the table, as the planner knows them.
        table_rows: Option<f64>,
        /// Whether the table is partitioned: an index is created on each partition first.
        partitioned: Option<bool>,
        /// Types of the columns in the filter, and in the condition of an index: `name type`, separated by `; `.
        column_types: String,
        /// Their collations, likewise; `C` for every one in the order of the code points.
        column_collations: String,
        /// Of a column with frequent values, the share of the rows that have the most frequent one: `name share`, separated by `; `.
        column_most: String,
    }
}

line! {
    /// An index of a table that a plan scans.
    PlanIndex, "plan_index" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// Schema and table, quoted.
        relation: String,
        /// The index.
        index: String,
        /// Its command.
        definition: String,
        /// Its columns in their order, separated by `; `; an expression is empty.
        columns: String,
        /// Their operator classes, likewise: `text_ops`, `text_pattern_ops`, ...
        operator_classes: String,
        /// Their collations, likewise; `C` for every one in the order of the code points, empty for types without.
        collations: String,
        /// Its method: `btree`, `gin`, ...
        method: String,
        /// Whether it can be used.
        valid: Option<bool>,
        /// Whether it has a condition.
        partial: Option<bool>,
        /// How far the values of its first column are in the order of the table's rows, by the statistics: 1 or -1 for all of them; absent if not known.
        correlation: Option<f64>,
    }
}

line! {
    /// A table of a plan, as the catalog has it.
    PlanTable, "plan_table" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// Schema and table, quoted.
        relation: String,
        /// All of its columns: `name type`, separated by `; `.
        columns: String,
        /// Of columns with statistics, how many different values they have, as far as the planner knows: `name number`, separated by `; `.
        column_values: String,
        /// Columns with large values, as far as the statistics show: `name type`, separated by `; `.
        wide_columns: String,
    }
}

line! {
    /// A function that the conditions or orders of a plan call, or one of its name.
    PlanFunction, "plan_function" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// Its name.
        name: String,
        /// Each of that name: its volatility (`i`, `s`, `v`), and the types of its arguments, separated by `, `; separated by `; `.
        overloads: String,
    }
}

line! {
    /// A change that was tried by EXPLAIN alone, and what it does to the planner's cost.
    WhatIf, "what_if" {
        /// The node.
        node: String,
        /// The database.
        database: String,
        /// `queryid`.
        query_id: String,
        /// Hash of the plan without the change.
        hash: String,
        /// `index`, `setting`.
        kind: String,
        /// The change as a command.
        change: String,
        /// Schema and table of an index, quoted.
        relation: String,
        /// Planner's cost without it.
        cost_before: Option<f64>,
        /// Planner's cost with it.
        cost_after: Option<f64>,
        /// Whether the plan with it uses the index, or has another shape.
        used: Option<bool>,
        /// Size of the index, as `hypopg` estimates it.
        bytes: Option<u64>,
        /// Why it was not tried; empty if it was.
        why_not: String,
    }
}
