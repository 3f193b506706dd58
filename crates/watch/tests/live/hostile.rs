//! What a plain role, or the owner of a database, does against the one who watches.

use super::plans::{PRELOAD, ROLE, end};
use super::watched::{Watch, client, client_of, on_each};
use record::event;
use record::watched::Sampled;
use std::time::Duration;

/// The texts of statements that were recorded.
fn texts(watch: &Watch) -> Vec<String> {
    let events = watch.seen.events.iter().filter(|event| event.kind == event::QUERY);
    events.filter_map(|event| event.more.get("text")?.as_str().map(str::to_string)).collect()
}

/// A name in the text of a statement, or that of an application, is anybody's choice.
#[test]
fn a_statement_with_our_name_in_it_is_none_of_ours() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut watch = Watch::of(&server.spec());
        // What this program sends itself as the role that watches is ours: so another role runs it.
        setup.batch_execute("create role app superuser login").unwrap();
        let mut app = client_of(server, "pgfathom watch", "app");
        let mut mallory = client_of(server, "pgfathom watch", "mallory");
        for _ in 0..2 {
            for _ in 0..3 {
                watch.tick();
                watch.skip(Duration::from_secs(60));
            }
            for _ in 0..20 {
                let heavy = "select count(*) from generate_series(1, 5000)";
                app.batch_execute(&format!("{heavy} pgfathom")).unwrap();
                mallory
                    .batch_execute(&format!("{heavy} g, json_build_object('pg_catalog.', 'pgfathom')"))
                    .unwrap();
            }
        }
        end(&mut watch);
        let texts = texts(&watch);
        for words in ["pgfathom", "json_build_object($"] {
            assert!(
                texts.iter().any(|text| text.contains("generate_series") && text.contains(words)),
                "{words}: {texts:#?}"
            );
        }
        let own = |text: &&String| text.contains("octet_length(answer)") || text.contains("set local");
        assert_eq!(texts.iter().filter(own).collect::<Vec<_>>(), [&""; 0], "statements of watch");
        // A session of our role with our name is at work.
        let sleeper = super::watched::background(server, "pgfathom watch", "select pg_sleep(20)");
        watch.until("a session that only has our name", |line| match line {
            Sampled::Wait(wait) if wait.wait_event == "PgSleep" => Some(()),
            _ => None,
        });
        setup
            .batch_execute("select pg_terminate_backend(pid) from pg_stat_activity where query ~ 'pg_sleep' and pid <> pg_backend_pid()")
            .unwrap();
        let _ = sleeper.join();
    });
}

/// The owner of a database, or a role, decides on the settings of all sessions.
#[test]
fn settings_of_a_role_or_a_database_end_no_session_of_ours() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        for (name, value) in [
            ("transaction_timeout", "1ms"),
            ("idle_session_timeout", "50ms"),
            ("idle_in_transaction_session_timeout", "1ms"),
            ("statement_timeout", "1ms"),
            ("lock_timeout", "1ms"),
            ("default_transaction_read_only", "on"),
            ("default_transaction_isolation", "serializable"),
            ("exit_on_error", "on"),
            ("client_encoding", "LATIN1"),
            ("datestyle", "German"),
            ("work_mem", "64kB"),
            ("enable_nestloop", "off"),
            ("gin_fuzzy_search_limit", "1"),
            ("array_nulls", "off"),
            ("xmloption", "document"),
            ("quote_all_identifiers", "on"),
        ] {
            let exists =
                setup.query_one("select exists (select from pg_settings where name = $1)", &[&name]).unwrap();
            if exists.get(0) {
                setup.batch_execute(&format!("alter database postgres set {name} = '{value}'")).unwrap();
            }
        }
        let mut watch = Watch::of(&server.spec());
        for _ in 0..4 {
            watch.tick();
            watch.skip(Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(120));
        }
        end(&mut watch);
        let away: Vec<_> = watch.seen.events.iter().filter(|event| event.kind == event::RESTART).collect();
        assert!(away.is_empty(), "{away:#?}");
        for what in ["server", "core", "settings", "tables", "statements"] {
            assert_eq!(watch.why_missing(what), "", "{what}");
        }
        let servers =
            watch.seen.lines.iter().filter(|(_, _, line)| matches!(line, Sampled::Server(_))).count();
        assert!(servers >= 4, "{servers}");
    });
}

/// A view that names another one twice, and so on: the server would put a billion of them in their places.
#[test]
fn views_that_name_each_other_twice_are_not_prepared() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory
            .batch_execute(
                "set search_path = mallory; create table orders as select generate_series(1, 20000) id; create view v0 as select id from orders;
                 do $$ begin for n in 1..3 loop
                   execute format('create view v%s as select a.id from v%s a where exists (select from v%s b where b.id = a.id)', n, n - 1, n - 1);
                 end loop; end $$; create view plain as select id from v0",
            )
            .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for _ in 0..20 {
            mallory.batch_execute("select count(*) from mallory.v2 where id > 7").unwrap();
            mallory.batch_execute("select count(*) from mallory.plain where id > 7").unwrap();
        }
        // What was small becomes large before the look.
        mallory
            .batch_execute(
                "create view mallory.w0 as select id from mallory.orders;
                 do $$ begin for n in 1..30 loop
                   execute format('create view mallory.w%s as select a.id from mallory.w%s a where exists (select from mallory.w%s b where b.id = a.id)',
                     n, n - 1, n - 1);
                 end loop; end $$; drop view mallory.v2 cascade; create view mallory.v2 as select id from mallory.w30",
            )
            .unwrap();
        watch.skip(Duration::from_secs(10));
        watch.tick();
        end(&mut watch);
        let why = watch.why_missing("plans");
        assert!(why.contains("with its views and policies in their places"), "{why}");
        // The refusal keeps no other statement from its plan.
        for _ in 0..20 {
            mallory.batch_execute("select count(*) from mallory.plain where id > 7").unwrap();
        }
        watch.skip(Duration::from_secs(10));
        watch.tick();
        end(&mut watch);
        let tables: Vec<String> =
            super::plans::nodes(&watch).iter().map(|node| node.relation.clone()).collect();
        assert!(tables.iter().any(|table| table == "mallory.orders"), "{tables:?} {why}");
    });
}

/// A database with any bytes in its names and texts.
#[test]
fn bytes_that_are_no_text_cost_no_session() {
    on_each(&[PRELOAD, ("pg_stat_statements.track", "all")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute("create database bytes encoding 'SQL_ASCII' template template0 locale 'C'")
            .unwrap();
        server
            .execute_in(
                "bytes",
                r"create extension pg_stat_statements;
                  do $$ begin
                    execute convert_from('\x637265617465207461626c6520226f7264e97222206173207365c0', 'SQL_ASCII');
                  exception when others then null; end $$;
                  do $$ declare name text := convert_from('\x6f7264e97273', 'SQL_ASCII'); begin
                    execute format('create table %I as select generate_series(1, 20000) id', name);
                    execute format('create role %I login', name);
                    execute format('alter table %I owner to %I', name, name);
                    for n in 1..20 loop execute format('select count(*) from %I where id > 7', name); end loop;
                  end $$",
            )
            .unwrap();
        let mut watch = Watch::of(&server.spec().with_dbname("bytes"));
        watch.tick();
        for _ in 0..3 {
            server
                .execute_in(
                    "bytes",
                    r"do $$ declare name text := convert_from('\x6f7264e97273', 'SQL_ASCII'); begin
                        for n in 1..20 loop execute format('select count(*) from %I where id > 7', name); end loop; end $$",
                )
                .unwrap();
            watch.skip(Duration::from_secs(60));
            watch.tick();
        }
        end(&mut watch);
        for what in ["server", "core", "tables", "statements"] {
            assert_eq!(watch.why_missing(what), "", "{what}");
        }
        let tables: Vec<String> =
            watch
                .seen
                .lines
                .iter()
                .filter_map(|(_, _, line)| {
                    if let Sampled::Table(table) = line { Some(table.relation.clone()) } else { None }
                })
                .collect();
        assert!(tables.iter().any(|table| table.contains("ord\u{fffd}rs")), "{tables:?}");
    });
}
