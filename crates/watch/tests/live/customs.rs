//! Settings of an application's own that the server reads while it plans.

use super::plans::{PRELOAD, end, nodes, watch_as};
use super::watched::{client, client_of, on_each};

/// A policy of row-level security that reads two settings of different types, which only sessions of the application have.
#[test]
fn settings_that_a_policy_reads_get_a_value_of_their_type() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role app login; create schema app authorization app; \
                 alter role app set search_path = app",
            )
            .expect("it runs");
        let mut app = client_of(server, "app", "app");
        app.batch_execute(
            "create table ticket (id int, tenant int, owner uuid, tags text[]); \
             insert into ticket select g, g % 50, null, array[g::text] from generate_series(1, 20000) g; analyze ticket; \
             alter table ticket enable row level security; alter table ticket force row level security; \
             create policy mine on ticket using (tenant = current_setting('app.tenant')::int \
               and owner = current_setting('app.member')::uuid); \
             set app.tenant = '7'; set app.member = '00000000-0000-0000-0000-000000000001'",
        )
        .expect("it runs");
        // A policy of any role chooses the words of a refusal: this name cannot be set, and must not keep the others from being planned.
        app.batch_execute(
            "create table bait (id int); insert into bait select generate_series(1, 20000); analyze bait; \
             create function trap() returns boolean language plpgsql stable as $$ begin \
               if current_setting('app.tenant', true) = '7' then return true; end if; \
               raise exception 'unrecognized configuration parameter \"plpgsql.nosuch\"' using errcode = '42704'; end $$; \
             alter table bait enable row level security; alter table bait force row level security; \
             create policy theirs on bait using (trap())",
        )
        .expect("it runs");
        let mut watch = watch_as(server, "postgres");
        for _ in 0..60 {
            app.batch_execute("select count(*) from bait where id = 5").expect("it runs");
        }
        watch.skip(std::time::Duration::from_secs(10));
        watch.tick();
        // The second one finds both settings known to the session, and empty.
        for text in [
            "select count(*) from ticket where tags && array['a']",
            "select id from ticket where tags @> array['b']",
        ] {
            for _ in 0..60 {
                app.batch_execute(text).expect("it runs");
            }
            watch.skip(std::time::Duration::from_secs(10));
            watch.tick();
        }
        end(&mut watch);
        let planned = nodes(&watch);
        for operator in ["&&", "@>"] {
            let is_there =
                planned.iter().any(|node| node.relation == "app.ticket" && node.filter.contains(operator));
            assert!(is_there, "{operator}: {planned:?} {}", watch.why_missing("plans"));
        }
        for name in ["app.tenant", "app.member"] {
            let left = setup.query_one("select current_setting($1, true)", &[&name]).expect("it runs");
            assert_eq!(left.get::<_, Option<String>>(0), None, "{name} is set for the plan alone");
        }
    });
}
