//! How a superuser plans where other roles can log in: as the role that ran a statement, whose code gets no more rights.

use super::plans::{PRELOAD, ROLE, end, nodes, watch_as};
use super::watched::{Watch, client, client_of, on_each};
use lab::throwaway::Throwaway;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A watch of a superuser, after its first tick.
fn watched(server: &Throwaway) -> Watch {
    let mut watch = Watch::of(&server.spec());
    watch.tick();
    watch
}

/// The tables of the plans of a text that a session runs.
fn planned(server: &Throwaway, session: &mut postgres::Client, text: &str) -> (Vec<String>, String) {
    planned_by(server, "postgres", session, text)
}

/// The same, watched by this role.
fn planned_by(
    server: &Throwaway,
    user: &str,
    session: &mut postgres::Client,
    text: &str,
) -> (Vec<String>, String) {
    let mut watch = watch_as(server, user);
    let role: String = session.query_one("select current_user::text", &[]).expect("it runs").get(0);
    for _ in 0..60 {
        if role != user {
            session.batch_execute(text).expect("it runs");
        }
    }
    // A text that this process sends as the role of watch is a statement of watch.
    if role == user {
        run_by_psql(server, user, text, 60);
    }
    watch.skip(std::time::Duration::from_secs(10));
    watch.tick();
    end(&mut watch);
    client(server, "reset").batch_execute("select pg_stat_statements_reset()").expect("it runs");
    let tables = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
    (tables, watch.why_missing("plans"))
}

/// Runs a statement so many times by a program of its own.
fn run_by_psql(server: &Throwaway, user: &str, text: &str, times: usize) {
    let psql = testing::needs::client_program("psql").expect("psql comes with the server");
    let (socket, port) = (server.socket_dir().display().to_string(), server.port().to_string());
    let mut command = std::process::Command::new(psql);
    command.args(["-X", "-q", "-h", socket.as_str(), "-p", port.as_str(), "-U", user, "-d", "postgres"]);
    if text.contains("staging") {
        command.args(["-c", "create temporary table staging as select generate_series(1, 20000) n"]);
    }
    for _ in 0..times {
        command.args(["-c", text]);
    }
    let output = command.output().expect("psql starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whatever is left of planning: locks, temporary tables, indexes, settings of the session.
const LEFT: &str = "select count(*)::int8 + (select count(*) from pg_class where relname ~ 'pgfathom')
     + (select count(*) from pg_proc where proname ~ 'pgfathom')
   from pg_locks l join pg_stat_activity a using (pid) where a.application_name = 'pgfathom watch'";

/// The connection for a plan ends by itself: its server process may take a while to notice.
fn left(setup: &mut postgres::Client) -> i64 {
    let mut count = || setup.query_one(LEFT, &[]).expect("it runs").get::<_, i64>(0);
    for _ in 0..100 {
        if count() == 0 {
            return 0;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    count()
}

/// Statements of an application's role, watched by a superuser.
#[test]
fn a_superuser_plans_as_the_role_that_ran_a_statement() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role \"The Shop\" login; create schema shop authorization \"The Shop\"; \
                 alter role \"The Shop\" set search_path = shop, public; create schema other; create table other.orders (id int)",
            )
            .unwrap();
        let mut shop = client_of(server, "shop", "The Shop");
        shop.batch_execute(
            "create type state as enum ('new', 'paid'); create domain amount as numeric check (value >= 0); \
             create function shop.vip(text) returns boolean language plpgsql immutable as 'begin return $1 = ''U5@X''; end'; \
             create table orders (id bigint primary key, email text, state state default 'new', total amount, at timestamptz default now()); \
             create index on orders (lower(email)) where state = 'paid'; \
             create table \"Lines\" (order_id bigint, item text, at date) partition by range (at); \
             create table lines_1 partition of \"Lines\" for values from ('2026-01-01') to ('2026-07-01'); \
             create table lines_2 partition of \"Lines\" for values from ('2026-07-01') to ('2027-01-01'); \
             create view paid as select id, email, rank() over (partition by email order by at) n from orders where state = 'paid'; \
             create view best as select * from paid where n = 1; \
             insert into orders select g, 'u' || g || '@x', 'paid', g, now() from generate_series(1, 20000) g; \
             insert into \"Lines\" select g, 'i' || g % 100, date '2026-01-01' + g % 300 from generate_series(1, 20000) g; analyze; \
             alter table \"Lines\" enable row level security; create policy mine on \"Lines\" using (item <> current_user); \
             alter table \"Lines\" force row level security",
        )
        .unwrap();
        let texts = [
            ("select count(*) from orders where upper(email) = 'U5@X'", "shop.orders"),
            ("select count(*) from orders where shop.vip(upper(email))", "shop.orders"),
            (
                "select o.id, count(*) from orders o join \"Lines\" l on l.order_id = o.id where o.total > 19000 group by 1 limit 3",
                "shop.lines_2",
            ),
            ("update orders set total = total + 1 where email = 'none'", "shop.orders"),
            (
                "insert into orders (id, email) select id + 1000000, email from orders where email = 'none'",
                "shop.orders",
            ),
            ("select n from best where id = 5 and email > 'u1'", "shop.orders"),
        ];
        for (text, table) in texts {
            let (tables, why) = planned(server, &mut shop, text);
            assert!(tables.iter().any(|planned| planned == table), "{text}: {tables:?} {why}");
            assert_eq!(left(&mut setup), 0, "{text}");
        }
        // With the policies that apply to that role.
        let mut watch = watched(server);
        // On a busy host a statement may not have taken enough of the time at first.
        for _ in 0..5 {
            for _ in 0..60 {
                shop.batch_execute("select count(*) from shop.\"Lines\" where order_id > 7").unwrap();
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            if !nodes(&watch).is_empty() {
                break;
            }
        }
        end(&mut watch);
        assert!(nodes(&watch).iter().any(|node| node.filter.contains("CURRENT_USER")), "{:?}", nodes(&watch));
    });
}

/// Statements of a superuser beside other roles, over tables of superusers: planned as a role that reads, where there is one.
#[test]
fn what_a_superuser_ran_is_planned_as_a_role_that_reads() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        setup
            .batch_execute(
                "create table stock (id int, place text); insert into stock select g, g from generate_series(1, 20000) g; analyze stock; \
                 create table mallory.bait (id int); alter table mallory.bait owner to mallory",
            )
            .unwrap();
        let version = setup.query_one("select current_setting('server_version_num')::int", &[]).unwrap();
        let has_reader = version.get::<_, i32>(0) >= 140_000;
        let (tables, why) = planned(server, &mut setup, "select count(*) from stock where place = '7'");
        assert_eq!(tables.iter().any(|table| table == "public.stock"), has_reader, "{tables:?} {why}");
        // It may read and not delete: the rows to be deleted are found in the same way.
        let text =
            "delete from stock where id = 0 and place not in (select place from stock where id > 19990)";
        let (tables, why) = planned(server, &mut setup, text);
        assert_eq!(tables.iter().any(|table| table == "public.stock"), has_reader, "{tables:?} {why}");
        assert_eq!(left(&mut setup), 0);
    });
}

/// An application whose tables belong to the owner of its database, who also makes the schemas; and a setting of the role for another database, which does
/// not concern this one.
#[test]
fn names_are_found_in_schemas_of_the_databases_owner_and_not_of_others() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role owner login; create role app login; create role mallory login; \
                 alter database postgres owner to owner; alter schema public owner to owner; revoke create on schema public from public; \
                 grant all on schema public to owner",
            )
            .unwrap();
        setup.batch_execute("create database elsewhere").unwrap();
        setup.batch_execute("alter role app in database elsewhere set search_path = public").unwrap();
        let mut owner = client_of(server, "owner", "owner");
        owner
            .batch_execute(
                "create table orders (id int, note text); insert into orders select g, g from generate_series(1, 20000) g; analyze orders; \
                 grant select on orders to app",
            )
            .unwrap();
        let mut app = client_of(server, "app", "app");
        let text = "select count(*) from orders where note = '7'";
        let (tables, why) = planned(server, &mut app, text);
        assert!(tables.iter().any(|table| table == "public.orders"), "{tables:?} {why}");
        // Every role may make objects in it, as in databases that were made before PostgreSQL 15: then the table is named with its schema, and nothing else is
        // looked up there.
        owner.batch_execute("grant create on schema public to public").unwrap();
        let (tables, why) = planned(server, &mut app, text);
        assert!(tables.iter().any(|table| table == "public.orders"), "{tables:?} {why}");
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory
            .batch_execute(
                "create sequence ran; grant usage, update on ran to public; \
                 create function ran() returns int language plpgsql immutable as 'begin perform nextval(''public.ran''); return 1; end'; \
                 create function public.lower(varchar) returns text language plpgsql immutable as 'begin perform public.ran(); return $1; end'; \
                 create table prices (n int, note text); insert into prices select g, g from generate_series(1, 9999) g; grant all on prices to public; \
                 create index on prices (n) where public.ran() > 0",
            )
            .unwrap();
        setup.batch_execute("select setval('ran', 1, false)").unwrap();
        // The better candidate by its type is hers. The role itself runs it each time; planning must not.
        let theirs = "select count(*) from orders where note = lower('A'::varchar)";
        let (tables, why) = planned(server, &mut app, theirs);
        assert!(tables.iter().any(|table| table == "public.orders"), "{tables:?} {why}");
        let called: i64 = setup.query_one("select last_value from ran", &[]).unwrap().get(0);
        assert_eq!(called, 1, "by the session of the application, once");
        // As an extension like citext: an operator there that is for a column of the table.
        setup
            .batch_execute(
                "create function public.same(money, money) returns boolean language internal immutable strict as 'cash_eq'; \
                 create operator public.= (leftarg = money, rightarg = money, function = public.same); \
                 create table paid (amount money, note text); insert into paid select 1, g from generate_series(1, 9999) g; grant select on paid to app",
            )
            .unwrap();
        let (tables, why) = planned(server, &mut app, "select count(*) from paid where amount = 2::money");
        assert!(
            tables.iter().all(String::is_empty) && why.contains("operators in schema public"),
            "{tables:?} {why}"
        );
        // A table of hers is not planned.
        let (tables, why) = planned(server, &mut app, "select count(*) from prices where note = '7'");
        assert!(tables.iter().all(String::is_empty) && why.contains("may make some"), "{tables:?} {why}");
        // Without the right what was made with it stays.
        owner.batch_execute("revoke create on schema public from public").unwrap();
        let (tables, why) = planned(server, &mut app, text);
        assert!(tables.iter().any(|table| table == "public.orders"), "{tables:?} {why}");
        setup.batch_execute("alter role app in database postgres set search_path = public").unwrap();
        let (tables, why) = planned(server, &mut app, text);
        assert!(tables.iter().any(|table| table == "public.orders"), "{tables:?} {why}");
    });
}

/// Tables that belong to a role of migrations, in a schema where it may make more, and whose index calls its function: an application that is seen to use one
/// has run that function, and is planned with it. One that has a temporary table of that name, and calls a function of that role which uses the other, is not.
#[test]
fn a_table_of_another_role_is_planned_when_its_user_is_seen_to_use_it() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role flyway login; create role app login; grant create on schema public to flyway",
            )
            .unwrap();
        let version: i32 =
            setup.query_one("select current_setting('server_version_num')::int", &[]).unwrap().get(0);
        let mut flyway = client_of(server, "flyway", "flyway");
        flyway
            .batch_execute(
                "create sequence ran; grant usage, update on ran to public; \
                 create function ran() returns int language plpgsql immutable as 'begin perform nextval(''public.ran''); return 1; end'; \
                 create table orders (id int, note text); insert into orders select g, g from generate_series(1, 20000) g; grant all on orders to app; \
                 create table batch (id int); insert into batch select g from generate_series(1, 20000) g; create index on batch (id) where public.ran() > 0; grant all on batch to app; \
                 create function uses() returns bigint language sql security definer as 'select count(*) from public.batch'; analyze",
            )
            .unwrap();
        setup.batch_execute("select setval('ran', 1, false)").unwrap();
        let planned_during = |text: &'static str, before: &'static str| {
            let mut session = client_of(server, "app", "app");
            session.batch_execute(before).unwrap();
            // It is at work for as long as it is watched: on a busy machine one look may take a second.
            let watched = Arc::new(AtomicBool::new(true));
            let while_watched = Arc::clone(&watched);
            let at_work = std::thread::spawn(move || {
                while while_watched.load(Ordering::Relaxed) {
                    session.batch_execute(text).expect("it runs");
                }
                session.batch_execute("commit").expect("it ends");
            });
            let mut watch = watch_as(server, "postgres");
            for _ in 0..22 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                watch.skip(std::time::Duration::from_millis(900));
                watch.tick();
            }
            watched.store(false, Ordering::Relaxed);
            at_work.join().expect("the application ends");
            end(&mut watch);
            client(server, "reset").batch_execute("select pg_stat_statements_reset()").expect("it runs");
            let tables: Vec<String> = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
            (tables, watch.why_missing("plans"))
        };
        let (tables, why) =
            planned_during("select count(*) from orders, pg_sleep(0.1) where note = '7'", "begin");
        // Before PostgreSQL 14 no session shows which statement it is at work with.
        assert_eq!(
            tables.iter().any(|table| table == "public.orders"),
            version >= 140_000,
            "{tables:?} {why}"
        );
        assert!(version >= 140_000 || why.contains("was seen to hold its lock"), "{why}");
        // The end may be the first time that the statement is due: one that runs for seconds then.
        let mut session = client_of(server, "app", "app");
        session.batch_execute("select count(*) from orders, pg_sleep(0.3) where note = '8'").unwrap();
        let mut watch = watch_as(server, "postgres");
        let watched = Arc::new(AtomicBool::new(true));
        let while_watched = Arc::clone(&watched);
        let at_work = std::thread::spawn(move || {
            while while_watched.load(Ordering::Relaxed) {
                session
                    .batch_execute("select count(*) from orders, pg_sleep(0.3) where note = '8'")
                    .expect("it runs");
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        watch.skip(std::time::Duration::from_secs(10));
        end(&mut watch);
        watched.store(false, Ordering::Relaxed);
        at_work.join().expect("the application ends");
        let is_planned = nodes(&watch).iter().any(|node| node.relation == "public.orders");
        assert_eq!(is_planned, version >= 140_000, "{}", watch.why_missing("plans"));
        client(server, "reset").batch_execute("select pg_stat_statements_reset()").expect("it runs");
        for (before, text) in [
            (
                "begin; create temporary table batch as select generate_series(1, 20000) id; select public.uses()",
                "select count(*) from batch, pg_sleep(0.1) where id > 7",
            ),
            (
                "create temporary table batch as select generate_series(1, 20000) id; begin; select public.uses()",
                "select count(*), 1 from batch, pg_sleep(0.1) where id > 7",
            ),
        ] {
            let (tables, why) = planned_during(text, before);
            assert!(tables.iter().all(String::is_empty), "{before}: {tables:?} {why}");
            assert!(why.contains("was seen to hold its lock"), "{before}: {why}");
        }
        // Her function itself is planned by each session that runs it, as its owner.
        let called = setup.query_one("select last_value from ran", &[]).unwrap().get::<_, i64>(0);
        assert!(called <= 6, "{called} calls");
    });
}

/// Names that another role has made to be found in the place of those of a statement, and functions of hers that only have the name of a table.
#[test]
fn a_role_is_planned_with_nothing_that_another_one_put_in_the_way() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        setup
            .batch_execute("create role alice login; create schema shop authorization alice; alter role alice set search_path = shop")
            .unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory
            .batch_execute(
                "create sequence mallory.ran; grant usage, update on sequence mallory.ran to public; grant usage on schema mallory to public; \
                 create function mallory.ran() returns int language plpgsql immutable as 'begin perform nextval(''mallory.ran''); return 1; end'; \
                 create table mallory.trap (n int); grant all on mallory.trap to public; create index on mallory.trap (n) where mallory.ran() > 0; \
                 create function mallory.orders() returns bigint language sql as 'select count(*) from mallory.trap where n > 7'; \
                 create view mallory.staging as select mallory.ran() n from generate_series(1, 9); grant all on mallory.staging to public; \
                 grant create on schema mallory to public",
            )
            .unwrap();
        let mut alice = client_of(server, "alice", "alice");
        alice
            .batch_execute(
                "create table orders (id int, note text); insert into orders select g, g from generate_series(1, 20000) g; analyze orders; \
                 create temporary table staging (n int); insert into staging select generate_series(1, 20000)",
            )
            .unwrap();
        // Making the index has called it as well.
        setup.batch_execute("select setval('mallory.ran', 1, false)").unwrap();
        let ran = |setup: &mut postgres::Client| -> bool {
            setup.query_one("select is_called from mallory.ran", &[]).unwrap().get(0)
        };
        // As the superuser, and as that role itself, which owns tables.
        for user in ["postgres", "alice"] {
            // A text that this process has sent as alice is one of watch, if watch is alice: so each has its own.
            let counted = if user == "alice" { "note" } else { "*" };
            let text = &format!("select count({counted}) from orders where note = '7'");
            let (tables, why) = planned_by(server, user, &mut alice, text);
            assert!(tables.iter().all(|table| ["", "shop.orders"].contains(&table.as_str())), "{tables:?}");
            // The sieve of a role that plans with its own rights also refuses the name.
            assert!(
                !tables.is_empty() || user == "alice" && why.contains("function orders"),
                "{user}: {why}"
            );
            assert!(!ran(&mut setup), "{user}: by a function that has the name of a table");
            // Her own temporary table, also where psql runs the statement for her.
            let counted = if user == "alice" { "n" } else { "*" };
            let text = &format!("select count({counted}) from staging where n > 7");
            let (tables, why) = planned_by(server, user, &mut alice, text);
            assert!(
                tables.iter().all(String::is_empty) && why.contains("staging"),
                "{user}: {tables:?} {why}"
            );
            assert!(!ran(&mut setup), "{user}: by a view that has the name of a temporary table");
        }
        // A plan that is longer than any message.
        alice
            .batch_execute(
                "create table parts (id int, at date, what text) partition by list (id); do $$ begin for n in 1..150 loop execute format( \
                   'create table parts_%s partition of parts for values in (%s)', n, n); end loop; end $$; \
                 insert into parts select 1 + g % 150, now(), 'x' from generate_series(1, 3000) g; analyze parts",
            )
            .unwrap();
        let (tables, why) = planned(
            server,
            &mut alice,
            "select count(*) from parts where what like 'y%' and at > now() - interval '1 day'",
        );
        assert!(tables.iter().any(|table| table.starts_with("shop.parts_")), "{tables:?} {why}");
    });
}

/// Code that no timeout ends keeps neither the sampling nor a server process.
#[test]
fn a_plan_that_does_not_end_is_ended_from_outside() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory
            .batch_execute(
                "create function mallory.stays(int) returns int language plpgsql immutable as $$ begin \
                   if current_setting('application_name') <> 'pgfathom watch' then return 1; end if; \
                   perform set_config('client_connection_check_interval', '0', false); \
                   loop begin perform pg_sleep(60); exception when query_canceled then null; end; end loop; end $$; \
                 create table mallory.plain (id int); insert into mallory.plain select generate_series(1, 20000)",
            )
            .unwrap();
        let text =
            "select count(*) from mallory.plain where id = mallory.stays(length(current_user)) and id > 3";
        let (tables, why) = planned(server, &mut mallory, text);
        // On a slow host the plans of this test's own questions are among them.
        assert!(
            !tables.iter().any(|table| table.starts_with("mallory."))
                && why.contains("the connection on which it was planned"),
            "{tables:?} {why}"
        );
        assert_eq!(left(&mut setup), 0);
        let still = "select count(*) from pg_stat_activity where application_name = 'pgfathom watch' and state = 'active'";
        assert_eq!(setup.query_one(still, &[]).unwrap().get::<_, i64>(0), 0);
    });
}

/// What a role can prepare so that its code runs when one of its statements is planned, and what that code tries.
#[test]
fn code_of_others_gets_no_rights_from_a_superuser_that_plans() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory.batch_execute(TRIES).unwrap();
        mallory.batch_execute(TRAPS).unwrap();
        let value = |setup: &mut postgres::Client, sequence: &str| -> i64 {
            setup.query_one(&format!("select last_value from mallory.{sequence}"), &[]).unwrap().get(0)
        };
        for text in BAIT {
            mallory.batch_execute("select setval('mallory.ran', 1), setval('mallory.got', 100)").unwrap();
            let mut watch = watched(server);
            for _ in 0..5 {
                mallory.batch_execute(text).unwrap();
            }
            // What the code got before is what a session of mallory gets.
            mallory
                .batch_execute("discard temp; select setval('mallory.ran', 1), setval('mallory.got', 100)")
                .unwrap();
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            end(&mut watch);
            assert!(
                value(&mut setup, "ran") > 1,
                "{text}: the code did not run: {}",
                watch.why_missing("plans")
            );
            assert_eq!(value(&mut setup, "got"), 100, "{text}");
            assert_eq!(left(&mut setup), 0, "{text}");
            setup.batch_execute("select pg_stat_statements_reset()").unwrap();
            // The session of watch is still what it was.
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
        }
        let powers = "select count(*) from pg_roles where rolsuper and rolname = 'mallory'";
        assert_eq!(setup.query_one(powers, &[]).unwrap().get::<_, i64>(0), 0);
        // The same as a superuser: its statements are not planned.
        for text in BAIT {
            let mut watch = watched(server);
            setup.batch_execute("set search_path = mallory").unwrap();
            for _ in 0..20 {
                setup.batch_execute(text).unwrap();
            }
            mallory.batch_execute("select setval('mallory.ran', 1)").unwrap();
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            end(&mut watch);
            assert_eq!(value(&mut setup, "ran"), 1, "{text}");
            setup.batch_execute("reset search_path; select pg_stat_statements_reset()").unwrap();
        }
    });
}

/// Counts its runs, and what of all that a plain role must not do it could do, in sequences: those keep what a rollback undoes.
const TRIES: &str = r#"
create sequence mallory.ran; create sequence mallory.got minvalue 100;
create function mallory.try() returns int language plpgsql volatile as $$
declare command text; n int := 0;
begin
  perform nextval('mallory.ran');
  if current_user <> 'mallory' then return 1; end if;
  if session_user <> 'mallory' then perform setval('mallory.got', 199); end if;
  foreach command in array array['reset role', 'set role none', 'set role postgres', 'set local role postgres', 'reset session authorization',
    'set session authorization default', 'set session authorization postgres', 'alter role mallory superuser', 'create role eve superuser',
    'copy (select 1) to program ''true''', 'select pg_read_file(''PG_VERSION'')', 'create temporary table trap (n int)', 'prepare trap as select 1',
    'deallocate all', 'deallocate pgfathom_plan', 'discard all', 'listen trap', 'alter system set work_mem = ''1MB''',
    'set session_replication_role = origin', 'set log_min_messages = debug5', 'declare trap cursor with hold for select 1',
    'select set_config(''role'', ''postgres'', false)', 'select set_config(''session_authorization'', ''postgres'', false)',
    'create function pg_temp.trap() returns int language sql as ''select 1''', 'alter index pg_temp.pgfathom_plan_index rename to trap',
    'select 1 from pg_authid', 'commit', 'savepoint trap', 'rollback to savepoint pgfathom_plan', 'release savepoint pgfathom_plan',
    'alter function pg_temp.pgfathom_explains() owner to mallory',
    'create or replace function pg_temp.pgfathom_explains() returns int language sql as ''select 1''']
  loop
    n := n + 1;
    begin
      execute command;
      if current_user <> 'mallory' then perform setval('mallory.got', 200 + n); end if;
      -- What it may do as the owner of the temporary table, and what changes nothing, is undone.
      if command !~ 'role none|reset role|rename to trap|pg_temp.trap' then perform setval('mallory.got', 100 + n); end if;
    exception when others then null;
    end;
  end loop;
  perform pg_advisory_lock_shared(4711);
  return 1;
end $$;
create function mallory.evil(int) returns int language plpgsql immutable as 'begin return mallory.try(); end';
"#;

/// Objects that lead to it when a statement over them is planned.
const TRAPS: &str = "set search_path = mallory; create table many as select generate_series(1, 100000); create type pair as (a int, b int); \
     create function made(int) returns pair language plpgsql immutable as 'begin perform mallory.evil($1); return null; end'; \
     create cast (int as pair) with function made(int); \
     create function yes(int, float8) returns boolean language plpgsql immutable as 'begin perform mallory.evil($1); return true; end'; \
     create operator = (leftarg = int, rightarg = float8, function = yes); \
     create table plain (id int, pi int); insert into plain select g, g from generate_series(1, 10) g; \
     create domain defaulting as int default mallory.evil(1); create table kept (id int, v defaulting); insert into kept select g, 1 from generate_series(1, 20) g; \
     create table indexed (id int); insert into indexed select generate_series(1, 20); \
     create index on indexed (id) where mallory.evil(1) > 0; \
     create view seen as select id, mallory.evil(1) v from plain";

/// The statements.
const BAIT: [&str; 6] = [
    "select count(*) from mallory.plain where id = mallory.evil(length(current_user)) and pi < (select count(*) from mallory.many)",
    "select count(*) from mallory.plain where pi()::int operator(mallory.=) pi() and pi < (select count(*) from mallory.many)",
    "select count(*) from mallory.plain where (pi()::int::mallory.pair) is null and pi < (select count(*) from mallory.many)",
    "select count(*) from mallory.indexed where id < (select count(*) from mallory.many)",
    "select count(*) from mallory.seen where v > 0 and id < (select count(*) from mallory.many)",
    "insert into mallory.kept (id) select id from mallory.plain where pi > (select count(*) - 99995 from mallory.many)",
];

/// Texts of catalogs have the length that their owners like: more than a message of the server may have ends no connection.
#[test]
fn what_a_role_makes_too_long_to_read_ends_no_connection() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements; create role mallory login").unwrap();
        client_of(server, "mallory", "mallory")
            .batch_execute(
                "do $$ begin execute format('alter role mallory set application_name = %L', repeat('x', 70000000)); end $$",
            )
            .unwrap();
        let mut watch = watched(server);
        for _ in 0..3 {
            watch.skip(std::time::Duration::from_secs(1));
            watch.tick();
        }
        assert!(watch.missing().iter().all(|what| what.starts_with("pg_")), "{:?}", watch.missing());
        let is_lost = |event: &&record::event::Event| ["gap", "restart"].contains(&event.kind.as_str());
        let lost: Vec<_> = watch.seen.events.iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "{lost:?}");
        end(&mut watch);
        // What is still too long is refused with its length.
        let mut session = watch::sql::session::Session::open(&server.spec()).unwrap();
        let long = "select pg_catalog.repeat('x', 40000000)";
        let why = session.query(long, &[]).map(|_| ()).unwrap_err().to_string();
        assert!(why.contains("the server's answer has 40000000 bytes"), "{why}");
        assert_eq!(session.query("select '[1]'::text", &[]).unwrap()[0], 1);
    });
}
