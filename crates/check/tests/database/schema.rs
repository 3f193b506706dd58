//! The schema: a database with every fault, one without, and the first after the remedies.

use super::{check, cure, fired, machine, silent};
use check::database::Expected;
use lab::throwaway::{Options, Throwaway, installations};
use record::check::{Item, Verdict};
use testing::on_each;

const SICK: &[&str] = &[
    "create schema \"Odd \"\"schema\"",
    // Keys.
    "create table no_key (i int)",
    "create table published (i int)",
    "create table published_index (i int not null, unique (i))",
    "create table full_identity (i int primary key); alter table full_identity replica identity full",
    "create table nothing_identity (i int primary key); alter table nothing_identity replica identity nothing",
    "create publication p for table published, published_index, full_identity, nothing_identity",
    // Places.
    "create unlogged table \"Odd \"\"schema\".\"un logged\" (i int primary key)",
    "create table moved (i int primary key, j int)",
    "create index moved_j on moved (j) tablespace other",
    // Indexes.
    "create table indexed (i int primary key, a int, b int, c text)",
    "insert into indexed select g, g, g, md5(g::text) from generate_series(1, 20000) g",
    "create index unused on indexed (c)",
    "create index twin_1 on indexed (a, b)",
    "create index twin_2 on indexed (a, b)",
    "create index shorter on indexed (a)",
    "create table doubled (i int primary key, j int); insert into doubled values (1, 1), (2, 1)",
    // Constraints.
    "create table referenced (i int primary key); insert into referenced select generate_series(1, 10)",
    "create table referencing (i int primary key, r int references referenced); insert into referencing select g, 1 + g % 10 from generate_series(1, 5000) g",
    "alter table referencing add constraint positive check (r > 0) not valid",
    // Numbers.
    "create table counted (i serial primary key); select setval('counted_i_seq', 2000000000)",
    "create table small_counted (i smallserial primary key); select setval('small_counted_i_seq', 32000)",
    "create table large_values (i int primary key); insert into large_values select 2000000000 + g from generate_series(1, 1000) g",
    // Partitions.
    "create table by_day (t timestamptz not null, i int, primary key (t, i)) partition by range (t)",
    "create table by_day_1 partition of by_day for values from ('2020-01-01') to ('2020-02-01')",
    "create table soon (d date not null primary key) partition by range (d)",
    "do $$ begin execute format('create table soon_1 partition of soon for values from (%L) to (%L)', current_date, current_date + 1); end $$",
    "create table with_default (i int primary key) partition by list (i)",
    "create table with_default_d partition of with_default default; insert into with_default select generate_series(1, 2000)",
    "create table too_large (i int primary key)",
    // Upkeep.
    "create table no_vacuum (i int primary key) with (autovacuum_enabled = off)",
    "create table dead (i int primary key, t text) with (autovacuum_vacuum_threshold = 1, autovacuum_enabled = off)",
    "insert into dead select g, 'x' from generate_series(1, 20000) g; delete from dead where i % 4 > 0",
    "create table never_analyzed (i int primary key) with (autovacuum_enabled = off); insert into never_analyzed select generate_series(1, 5000)",
    "create table stale (i int primary key) with (autovacuum_enabled = off); insert into stale select generate_series(1, 5000); analyze stale; insert into stale select generate_series(5001, 15000)",
    "create table updated (i int primary key, u int) with (autovacuum_enabled = off); insert into updated select g, g from generate_series(1, 100000) g; create index on updated (u); update updated set u = u + 1",
    "create table documents (i int primary key, t text); alter table documents alter t set storage external",
    "insert into documents select g, repeat(md5(g::text), 10000) from generate_series(1, 60) g",
    "create table correlated (a int primary key, b int) with (autovacuum_enabled = off); insert into correlated select g, g / 2 from generate_series(1, 2000) g; create statistics correlation (dependencies) on a, b from correlated",
    // Bloat.
    "create table bloated (i int primary key, t text) with (autovacuum_enabled = off)",
    "insert into bloated select g, repeat('x', 900) from generate_series(1, 40000) g",
    "create index bloated_t on bloated ((i + 0))",
    "create table bloated_keys (k text) with (autovacuum_enabled = off); insert into bloated_keys select repeat('y', 440) || md5(g::text) from generate_series(1, 70000) g",
    "create index bloated_keys_k on bloated_keys (k)",
    "delete from bloated where i % 20 > 0; delete from bloated_keys where substr(k, 441, 1) > '0'",
    "create extension pgstattuple version '1.4'",
];

/// Checks, subjects and verdicts of [`SICK`].
const FIRING: &[(&str, &str, Verdict)] = &[
    ("schema.primary_key", "public.published", Verdict::Fail),
    ("schema.primary_key", "public.published_index", Verdict::Fail),
    ("schema.primary_key", "public.no_key", Verdict::Note),
    ("schema.replica_identity", "full_identity", Verdict::Warn),
    ("schema.replica_identity", "nothing_identity", Verdict::Fail),
    ("schema.tablespaces", "moved_j", Verdict::Warn),
    ("schema.unlogged", "\"Odd \"\"schema\".\"un logged\"", Verdict::Warn),
    ("schema.unused_indexes", "public.unused", Verdict::Warn),
    ("schema.duplicate_indexes", "twin_2", Verdict::Warn),
    ("schema.redundant_indexes", "shorter", Verdict::Warn),
    ("schema.invalid_indexes", "broken", Verdict::Warn),
    ("schema.not_validated", "positive", Verdict::Warn),
    ("schema.foreign_key_index", "referencing", Verdict::Warn),
    ("schema.sequences", "public.counted_i_seq", Verdict::Warn),
    ("schema.sequences", "small_counted_i_seq", Verdict::Fail),
    ("schema.int4_keys", "large_values.i", Verdict::Warn),
    ("schema.partitions_ahead", "by_day", Verdict::Fail),
    ("schema.partitions_ahead", "soon", Verdict::Warn),
    ("schema.table_bloat", "public.bloated", Verdict::Warn),
    ("schema.table_bloat", "bloated_keys", Verdict::Warn),
    ("schema.index_bloat", "bloated_keys_k", Verdict::Warn),
    ("schema.dead_rows", "public.dead", Verdict::Warn),
    ("schema.autovacuum_disabled", "no_vacuum", Verdict::Warn),
    ("schema.statistics", "never_analyzed", Verdict::Warn),
    ("schema.statistics", "public.stale", Verdict::Warn),
    ("schema.fillfactor", "updated", Verdict::Note),
    ("schema.extended_statistics", "correlation", Verdict::Warn),
    ("schema.extensions", "pgstattuple", Verdict::Warn),
];

fn sick(server: &Throwaway) {
    let place = server.socket_dir().join("other");
    std::fs::create_dir(&place).unwrap();
    // The server's user owns the folder above.
    let owner = std::fs::metadata(server.socket_dir()).unwrap();
    use std::os::unix::fs::MetadataExt;
    std::os::unix::fs::chown(&place, Some(owner.uid()), Some(owner.gid())).unwrap();
    server.execute(&format!("create tablespace other location '{}'", place.display())).unwrap();
    server.execute("create database sick").unwrap();
    let run = |sql: &str| server.execute_in("sick", sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    SICK.iter().for_each(|sql| drop(run(sql)));
    for table in [
        "indexed",
        "moved",
        "referenced",
        "referencing",
        "large_values",
        "documents",
        "bloated",
        "bloated_keys",
        "updated",
        "with_default_d",
    ] {
        run(&format!("vacuum analyze {table}"));
    }
    let _ = server.execute_in("sick", "create unique index concurrently broken on doubled (j)").unwrap_err();
    // One table that was read often, and never by its index.
    run(
        "set enable_indexscan = off; do $$ begin for i in 1..10000 loop perform 1 from indexed limit 1; end loop; end $$",
    );
    run("update pg_class set relpages = -400000000 where relname = 'too_large'");
    // Statistics of short sessions arrive within a second.
    testing::wait_for("the counters", || {
        let n = server
            .execute_in("sick", "select n_dead_tup from pg_stat_all_tables where relname = 'dead'")
            .unwrap();
        n[0][0].as_deref() == Some("15000")
    });
}

#[test]
fn every_fault_of_a_schema_is_found_and_its_remedy_removes_the_item() {
    on_each(&installations(), |installation| {
        let settings = [("autovacuum_naptime", "1h"), ("wal_level", "logical")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let server = Options { settings, ..Options::default() }.start(installation).unwrap();
        sick(&server);
        let seen = |items: &[Item]| {
            items
                .iter()
                .filter(|item| item.check.starts_with("schema."))
                .map(|item| format!("{:?} {}", item.verdict, item.claim))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let items = check(&server, "sick", Some(machine()), &Expected::default());
        let missed: Vec<_> = FIRING
            .iter()
            .filter(|(id, subject, verdict)| {
                !super::of(&items, id, subject).iter().any(|item| item.verdict == *verdict)
            })
            .collect();
        assert!(missed.is_empty(), "{missed:?}\n{}", seen(&items));
        fired(&items, "schema.default_partition", "with_default", Verdict::Warn);
        fired(&items, "schema.toast", "documents", Verdict::Note);
        let large = fired(&items, "schema.relation_size", "too_large", Verdict::Warn);
        assert!(large.claim.contains("91 %"), "{}", large.claim);
        let bloated = fired(&items, "schema.table_bloat", "public.bloated", Verdict::Warn);
        assert!(bloated.claim.contains("measured by pgstattuple_approx"), "{}", bloated.claim);

        for (id, subject, verdict) in FIRING {
            cure(&server, "sick", fired(&items, id, subject, *verdict));
        }
        for sql in [
            "update pg_class set relpages = 0 where relname = 'too_large'",
            "drop table documents",
            "delete from with_default",
            "vacuum analyze with_default_d",
        ] {
            server.execute_in("sick", sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        // The first remedy makes at most two years of partitions.
        for _ in 0..4 {
            let items = check(&server, "sick", Some(machine()), &Expected::default());
            for item in super::of(&items, "schema.partitions_ahead", "by_day")
                .into_iter()
                .filter(|item| item.verdict == Verdict::Fail)
            {
                cure(&server, "sick", item);
            }
        }
        let items = check(&server, "sick", Some(machine()), &Expected::default());
        for (id, subject, _) in FIRING {
            silent(&items, id, subject);
        }
        for id in ["schema.relation_size", "schema.toast", "schema.default_partition"] {
            silent(&items, id, "");
        }
    });
}

const HEALTHY: &[&str] = &[
    "create table keyed (i bigint generated always as identity primary key, a int, b text)",
    "insert into keyed (a, b) select g, md5(g::text) from generate_series(1, 20000) g",
    "create index keyed_a on keyed (a); create index keyed_b on keyed (b) where a > 5; create index keyed_b_all on keyed (b); create unique index on keyed (i, a)",
    "create table child (i bigint primary key, k bigint not null references keyed); insert into child select g, g from generate_series(1, 5000) g; create index on child (k)",
    "create table ranges (t timestamptz not null, primary key (t)) partition by range (t)",
    "create table ranges_1 partition of ranges for values from ('2020-01-01') to ('2200-01-01')",
    "create table open_range (t date not null, primary key (t)) partition by range (t)",
    "create table open_range_1 partition of open_range for values from ('2020-01-01') to (maxvalue)",
    "create publication p for table keyed, child",
    "create statistics s (dependencies) on a, b from keyed",
    "create extension pgstattuple",
    "select count(*) from keyed where a = 1; set enable_seqscan = off; select * from keyed where a = 3; select * from keyed where b = 'x'; select * from keyed where b = 'x' and a > 6; select * from child where k = 1",
];

#[test]
fn a_healthy_schema_gives_no_finding() {
    on_each(&installations(), |installation| {
        let server = Options { settings: vec![("wal_level".into(), "logical".into())], ..Options::default() }
            .start(installation)
            .unwrap();
        server.execute("create database healthy").unwrap();
        for sql in HEALTHY {
            server.execute_in("healthy", sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        server.execute_in("healthy", "vacuum analyze").unwrap();
        let items = check(&server, "healthy", Some(machine()), &Expected::default());
        for item in items.iter().filter(|item| item.check.starts_with("schema.")) {
            // keyed_b was not used: the partial index is one that the planner need not choose.
            let is_unused = item.check == "schema.unused_indexes" && item.verdict == Verdict::Note;
            assert!(item.verdict == Verdict::Pass || is_unused, "{item:#?}");
        }
    });
}
