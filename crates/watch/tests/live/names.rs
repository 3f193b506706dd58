//! Where the names of a statement are looked up when it is planned, and what is reported about one that is not found there.

use super::plans::{PRELOAD, end, nodes};
use super::watched::{Watch, client, client_of, on_each};
use lab::throwaway::Throwaway;

/// A function of the database's own, as an extension would bring it, and a table, both in schema public.
const DISTANCE: &str = "create extension pg_stat_statements; create role app login; \
    create function public.distance(real[], real[]) returns float8 language plpgsql immutable as 'begin return 1; end'; \
    create table public.product (id int, place real[]); insert into public.product select g, array[g] from generate_series(1, 9999) g; \
    grant select on public.product to public; grant all on schema public to public; analyze";
const TEXT: &str = "select count(*) from product where distance(place, array[1.0::real]) > 5";

/// The relations of the plans of a text that a role runs, watched by a superuser, and why there is none.
fn planned(server: &Throwaway, user: &str, text: &str) -> (Vec<String>, String) {
    let mut watch = Watch::of(&server.spec());
    watch.tick();
    let mut session = client_of(server, "application", user);
    for _ in 0..30 {
        session.batch_execute(text).expect("it runs");
    }
    watch.skip(std::time::Duration::from_secs(10));
    watch.tick();
    end(&mut watch);
    client(server, "reset").batch_execute("select pg_stat_statements_reset()").expect("it runs");
    (nodes(&watch).iter().map(|node| node.relation.clone()).collect(), watch.why_missing("plans"))
}

fn is_planned(tables: &[String], table: &str) -> bool {
    tables.iter().any(|planned| planned == table)
}

/// In a schema that everybody may write to, which is left out as soon as any other role can log in.
#[test]
fn a_function_in_an_open_schema_is_found_where_only_its_user_can_log_in_and_else_the_reason_is_given() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute(DISTANCE).unwrap();
        let (tables, why) = planned(server, "app", TEXT);
        assert!(is_planned(&tables, "public.product"), "{tables:?} {why}");
        setup.batch_execute("create role billing login").unwrap();
        let (tables, why) = planned(server, "app", TEXT);
        assert!(!is_planned(&tables, "public.product"), "{tables:?}");
        for words in
            ["distance", "schema public", "PUBLIC may create", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"]
        {
            assert!(why.contains(words), "{words}: {why}");
        }
        setup.batch_execute("revoke create on schema public from public").unwrap();
        let (tables, why) = planned(server, "app", TEXT);
        assert!(is_planned(&tables, "public.product"), "{tables:?} {why}");
    });
}

/// A group without a login stands for its members: what only the role itself can become is its own.
#[test]
fn a_schema_of_a_group_is_searched_until_another_role_is_in_the_group() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute(DISTANCE).unwrap();
        setup
            .batch_execute(
                "revoke create on schema public from public; create role makers; grant makers to app; create role billing login; \
                 grant create on schema public to makers",
            )
            .unwrap();
        let (tables, why) = planned(server, "app", TEXT);
        assert!(is_planned(&tables, "public.product"), "{tables:?} {why}");
        setup.batch_execute("grant makers to billing").unwrap();
        let (tables, why) = planned(server, "app", TEXT);
        assert!(!is_planned(&tables, "public.product"), "{tables:?}");
        assert!(why.contains("role makers may create objects there"), "{why}");
        assert!(why.contains("REVOKE CREATE ON SCHEMA public FROM makers"), "{why}");
        // One that may put itself into any group (before PostgreSQL 16).
        setup.batch_execute("revoke makers from billing; alter role billing createrole").unwrap();
        let (tables, _) = planned(server, "app", TEXT);
        assert!(!is_planned(&tables, "public.product"), "{tables:?}");
    });
}

/// What a superuser ran goes through the sieve: it knows a function by its name, so that the schemas of superusers are searched beside those of the tables.
#[test]
fn a_function_beside_the_tables_of_a_superuser_is_found_in_a_schema_of_superusers() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create role app login; create role owner superuser login; create schema ext; create schema open; \
                 alter database postgres set search_path = public, ext, open; grant create on schema open to app; \
                 create function ext.near(int) returns int language plpgsql immutable set search_path = pg_catalog as 'begin return 1; end'; \
                 create function open.far(int) returns int language plpgsql immutable set search_path = pg_catalog as 'begin return 1; end'; \
                 create table public.product (id int); insert into public.product select generate_series(1, 9999); analyze",
            )
            .unwrap();
        if setup.query_one("select current_setting('server_version_num')::int", &[]).unwrap().get::<_, i32>(0)
            < 140_000
        {
            return;
        }
        let (tables, why) = planned(server, "owner", "select count(*) from product where near(id) > 5");
        assert!(is_planned(&tables, "public.product"), "{tables:?} {why}");
        let (tables, why) = planned(server, "owner", "select count(*) from product where far(id) > 5");
        assert!(!is_planned(&tables, "public.product"), "{tables:?}");
        assert!(
            why.contains("schema open") && why.contains("REVOKE CREATE ON SCHEMA open FROM app"),
            "{why}"
        );
    });
}
