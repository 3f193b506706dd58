//! What a superuser plans where other roles can log in, and what not.

use super::plans::{PRELOAD, ROLE, end, nodes};
use super::watched::{NODE, Watch, client, client_of, on_each};
use lab::throwaway::Throwaway;

/// A watch of a superuser that trusts the roles, after its first tick.
fn watched(server: &Throwaway) -> Watch {
    let mut watch = Watch::of(&server.spec());
    let planning = watch::Planning { trusts_roles: true, ..watch::Planning::default() };
    watch.node =
        watch::Node::new(NODE, &server.spec(), std::sync::Arc::clone(&watch.board)).planning(planning);
    watch.tick();
    watch
}

/// Statements of an application's role, watched by a superuser: most are planned although others can log in.
#[test]
fn a_superuser_plans_what_is_harmless_beside_other_roles() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role shop login; create schema shop authorization shop; alter role shop set search_path = shop",
            )
            .unwrap();
        let mut shop = client_of(server, "shop", "shop");
        shop.batch_execute(
            "create type state as enum ('new', 'paid'); \
             create table orders (id bigint primary key, email text, state state default 'new', total numeric check (total >= 0), at timestamptz default now()); \
             create index on orders (lower(email)) where state = 'paid'; \
             create table \"Lines\" (order_id bigint, item text, at date) partition by range (at); \
             create table lines_1 partition of \"Lines\" for values from ('2026-01-01') to ('2026-07-01'); \
             create table lines_2 partition of \"Lines\" for values from ('2026-07-01') to ('2027-01-01'); \
             create view paid as select id, email, rank() over (partition by email order by at) n from orders where state = 'paid'; \
             insert into orders select g, 'u' || g || '@x', 'paid', g, now() from generate_series(1, 20000) g; \
             insert into \"Lines\" select g, 'i' || g % 100, date '2026-01-01' + g % 300 from generate_series(1, 20000) g; analyze",
        )
        .unwrap();
        let texts = [
            ("select count(*) from orders where upper(email) = 'U5@X'", "shop.orders"),
            (
                "select o.id, count(*) from orders o join \"Lines\" l on l.order_id = o.id where o.total > 19000 group by 1 limit 3",
                "shop.lines_2",
            ),
            (
                "with x as (select item, sum(order_id) n from shop.\"Lines\" where order_id > 7 group by item) select * from x where n > 5",
                "shop.lines_1",
            ),
            ("update orders set total = total + 1 where email = 'none'", "shop.orders"),
            ("select n from paid where id = 5 and email > 'u1'", "shop.orders"),
        ];
        for (text, table) in texts {
            let mut watch = watched(server);
            for _ in 0..60 {
                shop.batch_execute(text).unwrap();
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            end(&mut watch);
            let planned: Vec<String> = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
            assert!(
                planned.iter().any(|planned| planned == table),
                "{text}: {planned:?} {}",
                watch.why_missing("plans")
            );
            setup.batch_execute("select pg_stat_statements_reset()").unwrap();
        }
        // Nothing of it stays locked.
        let locks = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation where c.relname in ('orders', 'pg_namespace') and l.pid <> pg_backend_pid()";
        assert_eq!(setup.query_one(locks, &[]).unwrap().get::<_, i64>(0), 0);
    });
}

/// What a role can prepare so that its code runs when a superuser plans one of these statements without checks.
#[test]
fn a_superuser_plans_nothing_that_leads_to_code_of_others() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements").unwrap();
        setup.batch_execute(ROLE).unwrap();
        let mut mallory = client_of(server, "mallory", "mallory");
        mallory
            .batch_execute(
                "set search_path = mallory; create function mallory.evil(int) returns int language plpgsql immutable as \
                   'begin perform pg_catalog.pg_advisory_lock_shared(4711); return 1; end'",
            )
            .unwrap();
        mallory
            .batch_execute(
                "create type pair as (a int, b int); \
                 create function made(int) returns pair language plpgsql immutable as 'begin perform mallory.evil($1); return null; end'; \
                 create cast (int as pair) with function made(int); \
                 create function yes(int, float8) returns boolean language plpgsql immutable as 'begin perform mallory.evil($1); return true; end'; \
                 create operator = (leftarg = int, rightarg = float8, function = yes); \
                 create function ln(int) returns float8 language plpgsql immutable as 'begin perform mallory.evil($1); return 1; end'; \
                 create domain bad as int check (mallory.evil(value) > 0); \
                 create table plain (id int, pi int); insert into plain select g, g from generate_series(1, 20000) g; \
                 create type kind as enum ('a'); create function written(kind) returns text language plpgsql immutable as 'begin perform mallory.evil(1); return null; end'; \
                 create cast (kind as text) with function written(kind); \
                 create domain defaulting as int default mallory.evil(1); create table kept (id int, v defaulting); insert into kept select g, 1 from generate_series(1, 20000) g; \
                 create table checked (id int check (mallory.evil(1) > 0)); insert into checked select generate_series(1, 20000); \
                 create table defaulted (id int, v int default mallory.evil(1)); insert into defaulted select generate_series(1, 20000); \
                 create table indexed (id int); insert into indexed select generate_series(1, 20000); \
                 create index on indexed (id) where mallory.evil(1) > 0; \
                 create table parts (id int) partition by range ((id + mallory.evil(1))); \
                 create table part partition of parts for values from (0) to (1000000); insert into parts select generate_series(1, 20000); \
                 create table counted (id int); insert into counted select generate_series(1, 20000); \
                 create view seen as select id, mallory.evil(1) v from plain; \
                 create view dumped as select id, table_to_xml('mallory.seen', true, true, '')::text v from plain; \
                 create table ruled (id int); create rule r as on insert to ruled do also select mallory.evil(1)",
            )
            .unwrap();
        let texts = [
            "select count(*) from plain where id = ln(length(current_user)) and pi > 3",
            "select count(*) from plain where 3::int = 3::float8 and pi > 3",
            "select count(*) from plain where (length(current_user)::mallory.pair) is null and pi > 3",
            "select count(*) from plain where id = length(current_user)::mallory.bad and pi > 3",
            "select count(*) from plain where id = cast(length(current_user) as mallory.bad) and pi > 3",
            "select count(*) from plain where 3 operator(mallory.=) 3::float8 and pi > 3",
            "select count(*) from checked where id > 3",
            "select count(*) from indexed where id > 3",
            "select count(*) from parts where id > 3",
            "select count(*) from seen where id > 3",
            "select count(*) from dumped where id > 19990",
            "insert into defaulted (id) select id from plain where pi > 3",
            "insert into kept (id) select id from plain where pi > 3",
            "update kept set v = default where id > 19990",
            "select count(*) from plain where (case when length(current_user) > 3 then null::mallory.kind end)::text is null and id > 3",
        ];
        let held = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.application_name = 'pgfathom watch'";
        for text in texts {
            let mut watch = watched(server);
            for _ in 0..20 {
                mallory.batch_execute(text).unwrap();
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
            assert_eq!(setup.query_one(held, &[]).unwrap().get::<_, i64>(0), 0, "{text}");
            end(&mut watch);
            assert_eq!(setup.query_one(held, &[]).unwrap().get::<_, i64>(0), 0, "{text}");
            let planned: Vec<String> = nodes(&watch).iter().map(|node| node.relation.clone()).collect();
            assert!(planned.is_empty(), "{text}: {planned:?}");
            setup.batch_execute("select pg_stat_statements_reset()").unwrap();
        }
    });
}
