//! Plans of statements: what is recorded, what a pretended index does to them, and what is never planned.

use super::watched::{NODE, Watch, client, client_of, major, on_each};
use lab::throwaway::Throwaway;
use record::event;
use record::watched::{MORE_THAN_READ, PlanIndex, PlanNode, Sampled, VIRTUAL_COLUMN, WhatIf, policy};
use watch::{Batch, Collect, Tick};

pub(super) const PRELOAD: (&str, &str) = ("shared_preload_libraries", "pg_stat_statements");
pub(super) const ROLE: &str = "create role mallory login; create schema mallory authorization mallory; grant create on schema public to mallory";
/// A role to watch with.
const WATCHER: &str = "create role watcher login; grant pg_monitor to watcher; grant usage on schema mallory to watcher; \
    grant select on all tables in schema mallory to watcher";
/// Leaves a lock with the session that ran it.
pub(super) const EVIL: &str = "create function public.evil(int) returns int language sql immutable as 'select 1 from (select \
    pg_catalog.pg_advisory_lock(4711)) x'; \
    create function mallory.evil(int) returns int language plpgsql immutable as 'begin perform pg_catalog.pg_advisory_lock(4711); return 1; end'";

/// A watch as this role, after its first tick.
pub(super) fn watch_as(server: &Throwaway, user: &str) -> Watch {
    let mut spec = server.spec();
    spec.user = user.to_owned();
    let mut watch = Watch::of(&spec);
    watch.tick();
    watch
}

/// The end of a recording.
pub(super) fn end(watch: &mut Watch) {
    let mut batch = Batch::default();
    let tick = Tick { now_us: watch.clock.now_us(), clock: watch.clock, cadence_us: 1_000_000 };
    watch.node.finish(&tick, &mut batch);
    watch.seen.lines.extend(batch.lines);
    watch.seen.events.extend(batch.events);
    watch.seen.files.extend(batch.files);
}

pub(super) fn nodes(watch: &Watch) -> Vec<PlanNode> {
    let lines = watch.seen.lines.iter();
    lines
        .filter_map(|(_, _, line)| if let Sampled::PlanNode(node) = line { Some(node.clone()) } else { None })
        .collect()
}

fn trials(watch: &Watch) -> Vec<WhatIf> {
    let lines = watch.seen.lines.iter();
    lines
        .filter_map(|(_, _, line)| if let Sampled::WhatIf(trial) = line { Some(trial.clone()) } else { None })
        .collect()
}

#[test]
fn a_missing_index_is_seen_in_the_plan_and_tried_where_hypopg_is() {
    on_each(&[PRELOAD], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create extension pg_stat_statements; create schema \"Shop\"; create table \"Shop\".orders (id int primary key, customer int, at timestamptz, \
                note varchar(20)); \
             insert into \"Shop\".orders select i, i % 10000, now(), 'x' from generate_series(1, 50000) i; create index on \"Shop\".orders (note); analyze \
             \"Shop\".orders; \
             set search_path = \"Shop\"",
        )
        .unwrap();
        let has_hypopg = user
            .query_one("select exists (select from pg_available_extensions where name = 'hypopg')", &[])
            .unwrap()
            .get::<_, bool>(0);
        if has_hypopg {
            user.batch_execute("create extension hypopg").unwrap();
        } else if major(server) < 18 {
            // The npm package of PostgreSQL 18 never has it.
            testing::skip(&testing::Lack::new(
                "hypopg",
                "a hypothetical index is tried only where the extension is installed",
            ));
        }
        let mut watch = Watch::of(&server.spec());
        watch.node = watch::Node::new(NODE, &server.spec(), std::sync::Arc::clone(&watch.board))
            .planning(watch::Planning { tries_settings: true });
        watch.tick();
        let drive = |user: &mut postgres::Client| {
            for _ in 0..20 {
                user.batch_execute("select count(*) from orders where at > '2000-01-01' and customer = 17")
                    .unwrap();
            }
        };
        drive(&mut user);
        watch.until_due("the plan", |line| match line {
            Sampled::Plan(plan) => Some(plan.clone()),
            _ => None,
        });
        let scan = nodes(&watch).into_iter().find(|node| node.kind == "Seq Scan").expect("a scan");
        assert_eq!(scan.relation, "\"Shop\".orders");
        assert!(scan.filter.contains("customer = $") && scan.table_rows == Some(50_000.0), "{scan:?}");
        assert!(scan.column_types.contains("customer integer"), "{scan:?}");
        let tried = trials(&watch);
        let index = tried.iter().find(|trial| trial.kind == "index").expect("an index");
        assert_eq!(index.change, "CREATE INDEX CONCURRENTLY ON \"Shop\".orders (\"customer\");");
        if has_hypopg {
            let (before, after) = (index.cost_before.unwrap(), index.cost_after.unwrap());
            assert!(index.used == Some(true) && after < before / 5.0 && index.bytes.is_some(), "{index:?}");
        } else {
            assert!(index.why_not.contains("hypopg") && index.cost_after.is_none(), "{index:?}");
        }
        assert!(tried.iter().any(|trial| trial.change == "SET work_mem = '256MB';"), "{tried:?}");
        let has_note = |line: &Sampled| {
            matches!(line, Sampled::PlanIndex(PlanIndex { columns, operator_classes, collations, .. })
            if columns == "note" && operator_classes == "text_ops" && !collations.is_empty())
        };
        assert!(watch.seen.lines.iter().any(|(_, _, line)| has_note(line)));
        // Nothing was created, and no transaction is left open.
        let left =
            "select count(*) from pg_index i join pg_class c on c.oid = indrelid where c.relname = 'orders'";
        assert_eq!(user.query_one(left, &[]).unwrap().get::<_, i64>(0), 2);
        let open = "select count(*) from pg_stat_activity where application_name = 'pgfathom watch' and state <> 'idle'";
        assert_eq!(user.query_one(open, &[]).unwrap().get::<_, i64>(0), 0);
        // With the index there is another plan at the end.
        user.batch_execute(index.change.replace("CONCURRENTLY ", "").as_str()).unwrap();
        drive(&mut user);
        end(&mut watch);
        let changes = watch.seen.events.iter().filter(|event| event.kind == event::PLAN_CHANGED).count();
        assert_eq!(changes, 1, "{:#?}", watch.seen.events);
        assert!(nodes(&watch).iter().any(|node| node.index == "orders_customer_idx"));
        let file = watch.seen.files.last().expect("a file");
        assert!(file.0.starts_with("plans/") && !String::from_utf8_lossy(&file.1).contains("2000-01-01"));
    });
}

#[test]
fn without_the_extension_a_statement_is_known_from_the_sessions_at_work_with_it() {
    on_each(&[], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create table parcel (id int primary key, label text); insert into parcel select i, 'l' || i from generate_series(1, 20000) i; analyze parcel",
        )
        .unwrap();
        let mut watch = Watch::of(&server.spec());
        // Constants of all kinds, and lists of several lengths, are one statement.
        let lists = ["7, 8, 9", "7", "1, 2, 3, 4"];
        let mut others: Vec<_> = lists.iter().map(|_| client(server, "user")).collect();
        std::thread::scope(|scope| {
            for (list, other) in lists.iter().zip(&mut others) {
                let sql = format!(
                    "select pg_sleep(3), count(*) + length('secret') from parcel where label = 'secret' and id in ({list})"
                );
                scope.spawn(move || other.batch_execute(&sql).unwrap());
            }
            std::thread::sleep(std::time::Duration::from_millis(700));
            watch.tick();
        });
        end(&mut watch);
        let texts: Vec<_> = watch.seen.events.iter().filter(|event| event.kind == event::QUERY).collect();
        let [seen] = texts.as_slice() else { panic!("one statement: {texts:#?}") };
        let word = |name: &str| seen.more[name].as_str().unwrap_or_default().to_string();
        let text = word("text");
        assert!(text.contains("label = $3 and id in ($4") && !text.contains("secret"), "{text}");
        assert_eq!(word("database"), "postgres");
        let is_its = |line: &Sampled| matches!(line, Sampled::Wait(wait) if wait.query_id.as_deref() == Some(&word("query_id")) && wait.sessions == 3);
        assert!(watch.seen.lines.iter().any(|(_, _, line)| is_its(line)), "{:#?}", watch.seen.lines);
        let scan = nodes(&watch).into_iter().find(|node| node.relation == "public.parcel").expect("a plan");
        assert!(scan.query_id == word("query_id") && scan.filter.contains("label = $3"), "{scan:?}");
    });
}

#[test]
fn partitions_that_are_left_out_when_it_runs_are_counted() {
    on_each(&[PRELOAD], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create extension pg_stat_statements; create table t (a int, b text) partition by hash (a)",
        )
        .unwrap();
        for part in 0..16 {
            let sql = format!(
                "create table t_{part} partition of t for values with (modulus 16, remainder {part})"
            );
            user.batch_execute(&sql).unwrap();
        }
        user.batch_execute("insert into t select i, i::text from generate_series(1, 200000) i; analyze t")
            .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for number in 0..30 {
            // Each takes a sixteenth of the other's time, and must have a share that is worth a plan.
            for _ in 0..20 {
                user.batch_execute(&format!("select count(*) from t where a = {number}")).unwrap();
            }
            user.batch_execute(&format!("select sum(a) from t where a + 0 = {number}")).unwrap();
        }
        end(&mut watch);
        let plans = watch.seen.lines.iter().filter_map(|(_, _, line)| match line {
            Sampled::Plan(plan) if plan.partitions == Some(16) => Some(plan.partitions_removed.unwrap_or(0)),
            _ => None,
        });
        let plans = plans.collect::<Vec<_>>();
        // Nulls leave out every partition where the key is compared, and none where it is inside of an expression.
        assert!(
            plans.contains(&0) && plans.iter().any(|removed| *removed >= 15),
            "{} {plans:?}",
            major(server)
        );
    });
}

#[test]
fn functions_of_plain_roles_are_never_run_by_planning() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory.batch_execute(EVIL).unwrap();
        mallory
            .batch_execute(
                "create table mallory.guarded (a int check (mallory.evil(a) > 0)); create table mallory.indexed (a int); \
                 create index on mallory.indexed (mallory.evil(a)); create view mallory.seen as select mallory.evil(1) v from mallory.indexed; \
                 create table mallory.plain (a int); insert into mallory.plain select generate_series(1, 20000); \
                 insert into mallory.indexed select generate_series(1, 20000); insert into mallory.guarded select generate_series(1, 20000); \
                 create table public.abs (a int)",
            )
            .unwrap();
        setup.batch_execute(WATCHER).unwrap();
        let texts = [
            "select count(*) from mallory.plain where public.evil(5) = 7 and a > 3",
            "select count(*), (plain.a).evil from mallory.plain where a > 3 group by plain.a",
            "select count(*) from mallory.indexed where a > 3",
            "select count(*) from mallory.guarded where a > 3",
            "select count(*) from mallory.seen where v > 3",
        ];
        setup.batch_execute("create role maker login createdb in role watcher").unwrap();
        for user in ["maker", "watcher"] {
            let mut watch = watch_as(server, user);
            for text in texts.iter().cycle().take(25) {
                let _ = mallory.batch_execute(text);
            }
            end(&mut watch);
            let planned: Vec<String> = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
            assert!(planned.is_empty(), "{user}: {planned:?}");
            let why = watch.why_missing("plans");
            assert_eq!(why.contains(MORE_THAN_READ), user == "maker", "{user}: {why}");
            let held = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.application_name = 'pgfathom \
                watch'";
            assert_eq!(setup.query_one(held, &[]).unwrap().get::<_, i64>(0), 0);
        }
        // The same role's table without functions is planned by one that may only read.
        let mut watch = watch_as(server, "watcher");
        for _ in 0..200 {
            mallory.batch_execute("select count(*) from mallory.plain where a % 7 = 3").unwrap();
        }
        watch.skip(std::time::Duration::from_secs(10));
        watch.tick();
        end(&mut watch);
        assert!(
            nodes(&watch).iter().any(|node| node.relation == "mallory.plain"),
            "{}",
            watch.why_missing("plans")
        );
    });
}

#[test]
fn settings_of_a_function_are_recorded_without_those_of_applications() {
    on_each(&[PRELOAD], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create extension pg_stat_statements; create table parcel (id int, note text); \
             insert into parcel select i, i from generate_series(1, 20000) i; analyze parcel; \
             create function parcels(wanted int) returns bigint language plpgsql set enable_indexscan = off set shop.token = 'hunter2' as \
               'begin return (select count(*) from parcel where id = wanted and note <> ''hunter3''); end'",
        )
        .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for _ in 0..20 {
            user.batch_execute("select parcels(17)").unwrap();
        }
        end(&mut watch);
        let seen = format!("{:?} {:?} {:?}", watch.seen.lines, watch.seen.events, watch.seen.files);
        assert!(seen.contains("enable_indexscan=off"), "{seen}");
        // The statement inside is planned.
        assert!(nodes(&watch).iter().any(|node| node.relation == "public.parcel"), "{:?}", watch.missing());
        assert!(!seen.contains("hunter") && !seen.contains("shop.token"), "{seen}");
    });
}

#[test]
fn what_the_other_partitions_have_and_where_a_key_comes_from_is_recorded() {
    on_each(&[PRELOAD], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create extension pg_stat_statements; create table log (machine int, taken date, mm float) partition by range (taken); \
             create table log_10 partition of log for values from ('2025-10-01') to ('2025-11-01'); \
             create table log_11 partition of log for values from ('2025-11-01') to ('2025-12-01'); \
             create table log_12 partition of log for values from ('2025-12-01') to ('2026-01-01'); \
             insert into log select i % 300, date '2025-10-01' + i % 90, i from generate_series(1, 60000) i; \
             create index on log (taken); create index on log_10 (machine, taken); create index on log_11 (machine, taken); \
             create index on log_11 (mm); create sequence counter; \
             create table pupil (id serial primary key, name text); create table form (id int generated always as identity primary key, n int); \
             create table mark (id int primary key default nextval('counter'), n int, unique (n, id)); \
             create index mark_n on mark (n); update pg_index set indisvalid = false where indexrelid = 'mark_n'::regclass; analyze",
        )
        .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for _ in 0..20 {
            user.batch_execute("select count(*) from log where machine = 17").unwrap();
        }
        // A session reports what it has counted when it ends.
        drop(user);
        testing::wait_for("the scans are counted", || {
            let mut other = client(server, "other");
            let sql = "select seq_scan > 0 from pg_catalog.pg_stat_user_tables where relname = 'log_12'";
            other.query_one(sql, &[]).is_ok_and(|row| row.get(0))
        });
        end(&mut watch);
        let table = |name: &str| {
            let mut found = watch.seen.lines.iter().rev().filter_map(|(_, _, line)| match line {
                Sampled::Table(table) if table.relation == name => Some(table.clone()),
                _ => None,
            });
            found.next().unwrap_or_else(|| panic!("{name} was not seen"))
        };
        assert_eq!(table("public.log_12").sibling_indexes, "machine, taken: 2 of 2");
        assert_eq!(table("public.log_11").sibling_indexes, "");
        assert_eq!(table("public.pupil").key_sequences, "pupil_pkey(id) from public.pupil_id_seq");
        assert_eq!(table("public.form").key_sequences, "form_pkey(id) from public.form_id_seq");
        assert_eq!(table("public.mark").key_sequences, "mark_pkey(id) from public.counter");
        assert_eq!(table("public.log_12").key_sequences, "");
        assert_eq!(table("public.mark").invalid_indexes, "mark_n");
        assert_eq!(table("public.log_12").invalid_indexes, "");
    });
}

/// Types whose checks, built-in functions whose arguments, and policies whose conditions run mallory's function.
const TRAPS: &str = "create function mallory.bad(text) returns bool language plpgsql as 'begin perform pg_catalog.pg_advisory_lock_shared(4711); return true; \
    end'; \
    create domain mallory.called as text check (mallory.bad(value)); \
    create domain mallory.quoted as text check (pg_catalog.query_to_xml('select mallory.bad(''x'')', true, true, '') is not null); \
    create domain mallory.nested as mallory.quoted; \
    create domain mallory.mail as text check (value ~ '@' and length(value) < 300); \
    create view mallory.postgres as select mallory.bad('x') e; \
    create table mallory.arrays (id int, of_called mallory.called[], of_nested mallory.nested[]); create table mallory.plain (id int, name text, at \
    mallory.mail); \
    create table mallory.secret (id int, name text); alter table mallory.secret enable row level security; grant select on mallory.secret to public; \
    create policy p on mallory.secret using (id < length(pg_catalog.table_to_xml('mallory.postgres', true, true, '')::text)); \
    insert into mallory.arrays select generate_series(1, 20000); insert into mallory.secret select generate_series(1, 20000); \
    insert into mallory.plain select i, i, i || '@' from generate_series(1, 20000) i";

/// The same for the ways to a function that no dependency of the statement shows: the input of a type, SQL in an argument, a condition of a policy. That each
/// of
/// them is one is shown by planning it as the watcher without watch's care.
#[test]
fn what_planning_would_run_by_a_type_a_name_or_a_policy_is_not_planned() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        setup
            .batch_execute(
                "alter role mallory set search_path = mallory; create role watcher login; grant pg_monitor to watcher; \
                 grant select on all tables in schema public to watcher",
            )
            .unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory.batch_execute(TRAPS).unwrap();
        setup.batch_execute("grant usage on schema mallory to watcher; grant select on all tables in schema mallory to watcher").unwrap();
        setup
            .batch_execute(
                "set check_function_bodies = off; create function public.trusting(int) returns int language sql as 'select helper($1) + 1'",
            )
            .unwrap();
        mallory
            .batch_execute(
                "create function mallory.helper(int) returns int language plpgsql immutable strict as \
                   'begin perform mallory.bad(''x''); return 1; end'; revoke create on schema mallory from mallory",
            )
            .unwrap();
        let of_types = [
            "select count(*) from mallory.arrays where of_called = array[current_user]::text::mallory.called[] and id > 3",
            "select count(*) from mallory.arrays where of_nested = array[current_user]::text::mallory.nested[] and id > 3",
            "select count(*) from plain where id = length(table_to_xml(current_database()::text::regclass, current_user is not null, \
               current_user is not null, current_user::text)::text)",
        ];
        let of_watcher = [
            "select count(*) from mallory.secret where id > 3",
            // The body of a trusted function finds a function of mallory by the path of the plan.
            "select count(*) from plain where id = public.trusting(floor(pi())::int) and id > 3",
        ];
        // The input of a domain that the text does not name: its object id is the length of a string of bits.
        let oid: u32 = setup.query_one("select 'mallory.called'::regtype::oid", &[]).unwrap().get(0);
        let of_computed = format!(
            "select count(*) from plain where id = case when length(current_user::text) > pi() then case when domain_in(textout(current_user::text), \
               length(pi()::int::bit({oid}))::oid, (pi() - pi())::int) is null then (pi() - pi())::int else length(current_user) end \
               else length(current_user) end"
        );
        let held = |setup: &mut postgres::Client, application: &str| {
            let held = format!(
                "select count(*) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.application_name = '{application}'"
            );
            setup.query_one(&held, &[]).unwrap().get::<_, i64>(0)
        };
        let role = "watcher";
        for text in of_types.into_iter().chain(of_watcher).chain([of_computed.as_str()]) {
            let mut careless = client_of(server, "careless", role);
            careless.batch_execute(&format!("set search_path = mallory; explain {text}")).unwrap();
            assert!(held(&mut setup, "careless") > 0, "{role} plans it without harm: {text}");
            drop(careless);
            let mut spec = server.spec();
            spec.user = role.to_owned();
            let mut watch = Watch::of(&spec);
            watch.tick();
            for _ in 0..5 {
                mallory.batch_execute(text).unwrap();
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            end(&mut watch);
            assert_eq!(held(&mut setup, "pgfathom watch"), 0, "{text}");
            let planned: Vec<String> = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
            assert!(planned.is_empty(), "{text}: {planned:?}");
        }
        // A domain whose check only compares is no danger to a role that may only read.
        let mut spec = server.spec();
        spec.user = "watcher".to_owned();
        let mut watch = Watch::of(&spec);
        watch.tick();
        for _ in 0..200 {
            mallory.batch_execute("select count(*) from mallory.plain where at = 'x@y' and id > 3").unwrap();
        }
        watch.skip(std::time::Duration::from_secs(10));
        watch.tick();
        end(&mut watch);
        assert!(
            nodes(&watch).iter().any(|node| node.relation == "mallory.plain"),
            "{}",
            watch.why_missing("plans")
        );
    });
}

#[test]
fn a_table_without_statistics_is_recorded_and_one_that_was_analysed_is_not() {
    on_each(&[PRELOAD], |server| {
        let mut user = client(server, "user");
        user.batch_execute(
            "create extension pg_stat_statements; create table bare (id int, note text) with (autovacuum_enabled = off); \
             create table known (id int, note text); insert into bare select i, i from generate_series(1, 20000) i; \
             insert into known select i, i from generate_series(1, 20000) i; analyze known",
        )
        .unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for _ in 0..20 {
            user.batch_execute("select count(*) from bare join known using (id) where bare.note <> 'x'")
                .unwrap();
        }
        end(&mut watch);
        let seen = format!("{:?} {:?}", watch.seen.lines, watch.seen.events);
        let facts: Vec<&str> = seen
            .match_indices(record::watched::NO_STATISTICS)
            .map(|(at, _)| &seen[at.saturating_sub(120)..at])
            .collect();
        assert!(facts.iter().any(|fact| fact.contains("public.bare")), "{seen}");
        assert!(facts.iter().all(|fact| !fact.contains("public.known")), "{facts:?}");
    });
}

/// A role that policies do not apply to, and that plans nothing beside another role, learns of them and of virtual columns all the same.
#[test]
fn policies_and_virtual_columns_are_recorded_also_where_nothing_is_planned() {
    on_each(&[PRELOAD], |server| {
        let has_virtual = major(server) >= 18;
        let mut user = client(server, "user");
        let sum = if has_virtual { ", twice int generated always as (team + team)" } else { "" };
        user.batch_execute(&format!(
            "create extension pg_stat_statements; create schema \"Shop\"; create table \"Shop\".note (id int, team int, kind text{sum});
             insert into \"Shop\".note (id, team) select i, i % 5 from generate_series(1, 20000) i; analyze \"Shop\".note;
             create function \"Shop\".may_see(int) returns bool language plpgsql stable as 'begin return $1 = 3; end';
             alter table \"Shop\".note enable row level security; create role clerk login;
             create policy \"of team\" on \"Shop\".note for select to clerk using (kind <> 'secret' and \"Shop\".may_see(team));
             set search_path = \"Shop\""
        ))
        .unwrap();
        let mut watch = watch_as(server, &server.spec().user);
        for _ in 0..20 {
            user.batch_execute("select count(*) from note where team = 17").unwrap();
        }
        end(&mut watch);
        let fact = |topic: &str| {
            let mut lines = watch.seen.lines.iter();
            lines.find_map(|(_, _, line)| match line {
                Sampled::Fact(fact) if fact.topic == topic => Some(fact.clone()),
                _ => None,
            })
        };
        let found = fact(policy::TOPIC).expect("the policy");
        let read: policy::Policy = serde_json::from_str(&found.value).unwrap();
        assert_eq!((read.relation.as_str(), read.name.as_str()), ("\"Shop\".note", "\"of team\""));
        assert_eq!(
            (read.command.as_str(), read.roles.as_slice()),
            ("SELECT", ["clerk".to_string()].as_slice())
        );
        assert!(read.exempt.contains(&server.spec().user) && !read.exempt.contains(&"clerk".to_string()));
        assert!(
            read.condition.contains("\"Shop\".may_see(team)") && !found.value.contains("secret"),
            "{read:?}"
        );
        let [function] = read.functions.as_slice() else { panic!("{read:?}") };
        assert_eq!((function.language.as_str(), function.volatility.as_str()), ("plpgsql", "STABLE"));
        if has_virtual {
            let found = fact(VIRTUAL_COLUMN).expect("the column");
            assert_eq!((found.name.as_str(), found.value.as_str()), ("\"Shop\".note twice", "(team + team)"));
        }
    });
}

/// The owner of a schema can rename it, or drop it, and put another function in the place of the extension's, which statements find by its name. A superuser
/// keeps the schema in its place while it asks.
#[test]
fn an_extension_in_a_schema_of_a_plain_role_is_used_by_a_superuser_while_it_stays_there() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute(ROLE).unwrap();
        setup.batch_execute("create extension pg_stat_statements schema mallory").unwrap();
        setup.batch_execute(WATCHER).unwrap();
        let reads_all =
            setup.query_one("select exists (select from pg_roles where rolname = 'pg_read_all_data')", &[]);
        let reads_all: bool = reads_all.unwrap().get(0);
        setup.batch_execute("create role reader login in role pg_monitor").unwrap();
        if reads_all {
            setup.batch_execute("grant pg_read_all_data to reader").unwrap();
        }
        for (user, is_used) in [("postgres", true), ("watcher", true), ("reader", !reads_all)] {
            let mut watch = watch_as(server, user);
            end(&mut watch);
            let why = watch.why_missing("pg_stat_statements");
            assert_eq!(why.is_empty(), is_used, "{user}: {why}");
            assert!(is_used || why.contains(MORE_THAN_READ) && why.contains("mallory"), "{why}");
        }
        let columns = "select string_agg(format('null::%s %I', format_type(atttypid, null), attname), ', ' order by attnum) from pg_attribute
            where attrelid = 'mallory.pg_stat_statements'::regclass and attnum > 0";
        let columns: String = setup.query_one(columns, &[]).unwrap().get(0);
        let decoy = format!(
            "create schema mallory; grant usage on schema mallory to public; create function mallory.trap() returns bool language plpgsql immutable as
               'begin perform pg_catalog.pg_advisory_lock_shared(4712); return true; end';
             create view mallory.pg_stat_statements as select {columns} where mallory.trap();
             create function mallory.pg_stat_statements(showtext bool) returns setof mallory.pg_stat_statements language sql
               as 'select * from mallory.pg_stat_statements where mallory.trap()'"
        );
        let held = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.application_name = 'pgfathom \
            watch'";
        let mut mallory = client_of(server, "mallory", "mallory");
        setup.batch_execute("grant create on database postgres to mallory").unwrap();
        for away in ["alter schema mallory rename to elsewhere", "drop schema mallory cascade"] {
            let mut watch = watch_as(server, "postgres");
            mallory.batch_execute(&format!("begin; {away}; {decoy}")).unwrap();
            // Under way, and then done: the trap is in the place of the extension's function.
            for step in ["select 1", "commit"] {
                watch.skip(std::time::Duration::from_secs(10));
                watch.tick();
                assert!(!watch.why_missing("statements").is_empty(), "{away}, {step}: {:?}", watch.missing());
                mallory.batch_execute(step).unwrap();
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            assert!(!watch.why_missing("statements").is_empty(), "{away}: {:?}", watch.missing());
            assert_eq!(setup.query_one(held, &[]).unwrap().get::<_, i64>(0), 0, "{away}");
            setup.batch_execute("drop schema mallory cascade; drop schema if exists elsewhere cascade; create schema mallory authorization mallory").unwrap();
            setup.batch_execute("drop extension if exists pg_stat_statements; create extension pg_stat_statements schema mallory").unwrap();
        }
        // The trap works on who does not look.
        setup.batch_execute("drop extension pg_stat_statements; drop schema mallory").unwrap();
        mallory.batch_execute(&decoy).unwrap();
        let mut careless = client_of(server, "careless", "postgres");
        careless.batch_execute("select * from mallory.pg_stat_statements(false)").unwrap();
        let sprung = held.replace("pgfathom watch", "careless");
        assert!(setup.query_one(&sprung, &[]).unwrap().get::<_, i64>(0) > 0);
    });
}
