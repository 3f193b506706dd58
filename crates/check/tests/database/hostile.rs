//! A database that no one prepared for a check: hostile names and roles, locks, many tables.

use super::{check, cure, fired, machine};
use check::database::{Expected, Need, Target};
use lab::throwaway::{Throwaway, installations};
use postgres::Client;
use record::check::Verdict;
use testing::on_each;

#[test]
fn names_cannot_steer_a_terminal_nor_a_remedy() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        server.execute("create database \"it's \"\"odd\"\" $$ \\ db\"").unwrap();
        let database = "it's \"odd\" $$ \\ db";
        for sql in [
            "create schema \"x\"\"; drop table t; --\"",
            "create unlogged table \"x\"\"; drop table t; --\".\"it's; \\! id\" (i int primary key)",
            "create unlogged table \"esc\u{1b}[2J\nline\u{202e}\" (i int primary key)",
            "create table \"select\" (\"from\" int primary key, \"where\" int); create index \"table\" on \"select\" (\"where\"); create index \"table2\" on \"select\" (\"where\")",
        ] {
            server.execute_in(database, sql).unwrap();
        }
        let items = check(&server, database, Some(machine()), &Expected::default());
        for item in &items {
            let shown = format!(
                "{} {} {} {} {}",
                item.subject,
                item.claim,
                item.why,
                item.remedy.text,
                item.remedy.commands.join(" ")
            );
            assert!(!shown.contains(|c: char| record::escape::is_active(c) || c == '\n'), "{item:?}");
        }
        let hidden = fired(&items, "schema.unlogged", "esc\\u001b[2J line\\u202e", Verdict::Warn);
        assert!(hidden.remedy.commands.is_empty() && hidden.remedy.text.contains("cannot be shown"));
        cure(&server, database, fired(&items, "schema.unlogged", "drop table t", Verdict::Warn));
        cure(&server, database, fired(&items, "schema.duplicate_indexes", "table2", Verdict::Warn));
        let items = check(&server, database, Some(machine()), &Expected::default());
        super::silent(&items, "schema.unlogged", "drop table t");
        super::silent(&items, "schema.duplicate_indexes", "table2");
    });
}

/// Everything that a plain role can put in the way: functions, operators, casts and views in the search path, with names of the catalog.
const DECOYS: &[&str] = &[
    "create role mallory login; grant create on schema public to mallory; set role mallory",
    "create function public.spring() returns boolean language plpgsql as $$ begin if (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then raise log 'SPRUNG by a superuser'; end if; return true; end $$",
    "create view public.pg_class as select null::oid as oid, 'x'::name as relname where public.spring()",
    "create view public.pg_settings as select 'x'::text as name where public.spring()",
    "create function public.format(text, name, name) returns text language sql as $$ select case when public.spring() then 'x' end $$",
    "create function public.age(xid) returns int language sql as $$ select case when public.spring() then 1 end $$",
    "create function public.pgstattuple_approx(regclass) returns table (table_len bigint, approx_free_space bigint, dead_tuple_len bigint) language sql as $$ select 1::bigint, 1::bigint, 1::bigint where public.spring() $$",
    "create function public.eq(name, name) returns boolean language sql as $$ select public.spring() $$; create operator public.= (leftarg = name, rightarg = name, function = public.eq)",
    "create function public.cat(text, name) returns text language sql as $$ select case when public.spring() then '' end $$; create operator public.|| (leftarg = text, rightarg = name, function = public.cat)",
    "create table public.hers (i int, t text) with (autovacuum_enabled = off); create index on public.hers ((case when public.immutable_spring() then i end))",
];

#[test]
fn no_object_of_a_plain_role_is_called_or_believed() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        let mut planter = Client::connect(&format!(
            "host='{}' port={} user=postgres dbname=postgres",
            server.socket_dir().display(),
            server.port()
        ))
        .unwrap();
        planter.batch_execute("create function public.immutable_spring() returns boolean immutable language plpgsql as $$ begin return public.spring(); end $$").unwrap();
        for sql in DECOYS {
            planter.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        planter.batch_execute("reset role; alter database postgres set search_path = public, pg_catalog; alter role postgres set search_path = public, pg_catalog").unwrap();
        let before = server.log().len();
        let items = check(&server, "postgres", Some(machine()), &Expected::default());
        assert!(items.len() > 50);
        assert!(!server.log()[before..].contains("SPRUNG"), "{}", &server.log()[before..]);
    });
}

#[test]
fn locked_tables_hold_nothing_up() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        server.execute("create table t (i serial primary key, e int); create index on t ((e + 1)) where e > 0; create table r (d date) partition by range (d)").unwrap();
        server
            .execute(
                "create table r_1 partition of r for values from ('2020-01-01') to ('2020-02-01'); analyze",
            )
            .unwrap();
        let mut holder = Client::connect(&format!(
            "host='{}' port={} user=postgres dbname=postgres",
            server.socket_dir().display(),
            server.port()
        ))
        .unwrap();
        holder.batch_execute("begin; lock table t, r, r_1; alter sequence t_i_seq increment 2").unwrap();
        let items = check(&server, "postgres", Some(machine()), &Expected::default());
        assert!(
            !items.iter().any(|item| item.why.contains("the server refused")),
            "{:#?}",
            items.iter().filter(|item| item.why.contains("the server refused")).collect::<Vec<_>>()
        );
        let sequences: Vec<_> = items.iter().filter(|item| item.check == "schema.sequences").collect();
        assert!(
            sequences
                .iter()
                .any(|item| item.verdict == Verdict::Unknown && item.why.contains("1 are locked")),
            "{sequences:#?}"
        );
        holder.batch_execute("rollback").unwrap();
    });
}

#[test]
fn a_read_only_session_changes_nothing_and_many_tables_give_few_items() {
    on_each(&installations(), |installation| {
        let server =
            Throwaway::start(installation, &[("autovacuum", "off"), ("max_locks_per_transaction", "2000")])
                .unwrap();
        let tables = if testing::is_thorough("100,000 tables") { 100_000 } else { 3_000 };
        for from in (0..tables).step_by(1000) {
            server
                .execute(&format!("do $$ begin for i in {from}..{from} + 999 loop execute format('create unlogged table t%s (i int, j serial)', i); end loop; end $$"))
                .unwrap();
        }
        let written = || {
            server
                .value("select pg_current_xact_id()::text::bigint - 1")
                .or_else(|_| server.value("select txid_current() - 1"))
                .unwrap()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let before = written();
        let items = check(&server, "postgres", Some(machine()), &Expected::default());
        assert_eq!(written() - before, 1, "the check used a transaction id");
        assert!(!items.iter().any(|item| item.why.contains("the server refused")), "{items:#?}");
        let is_of_others = |known: &&check::database::Check| {
            known.needs.iter().any(|need| matches!(need, Need::Plan | Need::Standby))
        };
        for known in check::database::all().filter(|known| !is_of_others(known)) {
            let count = items.iter().filter(|item| item.check == known.id).count();
            assert!((1..=22).contains(&count), "{}: {count}", known.id);
        }
        let rest = items.iter().rfind(|item| item.check == "schema.unlogged").unwrap();
        assert!(rest.claim.contains("more like these") && rest.verdict == Verdict::Warn, "{rest:?}");
    });
}

#[test]
fn a_node_that_does_not_answer_is_one_failed_item() {
    let target =
        Target { name: "away".into(), spec: connect::ConnSpec::new("127.0.0.1", 1, "u", "d"), machine: None };
    let items = check::database::check(&[target], &Expected::default());
    assert_eq!(items.len(), 1);
    assert_eq!((items[0].check.as_str(), items[0].verdict), ("node.reached", Verdict::Fail));
}
