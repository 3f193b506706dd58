//! Tables, code and rows that belong to other roles.

use super::*;

/// Tables and ledgers of a role that could run code with a superuser's rights.
#[test]
fn what_a_plain_role_owns_or_has_attached_is_refused() {
    on_each(|server| {
        server.execute("create role mallory").unwrap();
        server.execute("create database app").unwrap();
        load_ycsb(&database(server, "app"), &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
        server.execute_in("app", "grant create on schema public to mallory").unwrap();
        let evil = "set role mallory; create function public.evil(varchar) returns varchar language plpgsql immutable as $$ begin return $1; end $$; \
                    create function public.evil_trigger() returns trigger language plpgsql as $$ begin return new; end $$; reset role; ";
        let with = |sql: &str| format!("{evil}{sql}");
        let (index, default, check, extra) = (
            with("create index on usertable (public.evil(field1))"),
            with("alter table usertable alter field1 set default public.evil('a')"),
            with("alter table usertable add check (public.evil(field1) is not null)"),
            with(
                "set role mallory; create domain public.mine as int check (public.evil('a') is not null); reset role; alter table usertable add extra public.mine",
            ),
        );
        damage(
            server,
            "app",
            false,
            &[
                ("alter table usertable owner to mallory", Refused("usertable belongs to the role mallory")),
                (
                    "alter schema pgfathom owner to mallory",
                    Refused("the schema pgfathom belongs to the role mallory"),
                ),
                ("alter table pgfathom.chunk owner to mallory", Refused("chunk belongs to the role mallory")),
                (
                    &index,
                    Refused("belongs to the role mallory and would run with the rights of this session"),
                ),
                (&default, Refused("a default or generated value uses function")),
                (&check, Refused("uses function")),
                (&extra, Refused("a column or the partition key uses function public.evil(")),
                (
                    "create function public.fine() returns trigger language plpgsql as $$ begin return new; end $$; \
              create trigger t before insert on usertable for each row execute function public.fine()",
                    Exact,
                ),
            ],
        );
        // What a load must not do although a verification may.
        for (name, sql, expected) in [
            ("t1", with("create trigger audit before insert on usertable for each row execute function public.evil_trigger()"), "the trigger audit"),
            ("t2", "create function public.fine() returns trigger language plpgsql as $$ begin return new; end $$; \
                    create trigger audit before insert on usertable for each row execute function public.fine()".to_owned(),
             "usertable has the trigger audit, which pgfathom did not make"),
            ("t3", "create rule nothing as on insert to usertable do instead nothing".to_owned(), "usertable has the rule nothing"),
            ("t4", "create function public.fine() returns trigger language plpgsql as $$ begin return new; end $$; \
                    create trigger audit before insert on pgfathom.chunk for each row execute function public.fine()".to_owned(),
             "chunk has the trigger audit"),
            ("t5", "alter schema pgfathom owner to mallory".to_owned(), "the schema pgfathom belongs to the role mallory"),
        ] {
            server.execute(&format!("create database {name} template app")).unwrap();
            server.execute_in(name, &sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            server.execute_in(name, "update pgfathom.dataset set loaded_at = null").unwrap();
            let error = load_ycsb(&database(server, name), &options(ROWS, 0), &Stop::new(), &mut Silent);
            let error = error.expect_err("it is refused");
            assert!(words(&error).contains(expected), "{name}: {}", words(&error));
        }
        // A schema with our comment, and tables in it, made by somebody else before any load.
        server.execute("create database trap").unwrap();
        server.execute_in("trap", "grant create on database trap to mallory; set role mallory; create schema pgfathom; \
            comment on schema pgfathom is 'pgfathom ledger 2: mine'; create view pgfathom.dataset as select 1 as id").unwrap();
        let error =
            load_ycsb(&database(server, "trap"), &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap_err();
        assert!(
            matches!(&error, LoadError::NotTrusted { owner, .. } if owner == "mallory"),
            "{}",
            words(&error)
        );
        assert!(verify(&database(server, "trap"), false, false).is_err());
    });
}

/// Whoever may own a database need not be a superuser, and code on the owner's tables would run with the rights of the session.
#[test]
fn a_superuser_does_not_trust_the_plain_owner_of_a_database_and_the_owner_can_do_everything() {
    on_each(|server| {
        server
            .execute(
                "create role dbo login; create role files login in role pg_read_server_files; create role plain login",
            )
            .unwrap();
        server.execute("create database d owner dbo").unwrap();
        let d = database(server, "d");
        let as_dbo = d.clone().with_user("dbo");
        load_ycsb(&as_dbo, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
        load_ycsb(&as_dbo, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
        server
            .execute_in(
                "d",
                "set role dbo; create function evil(t text) returns boolean language plpgsql immutable as
                 $$ begin raise log 'SPRUNG by %', current_user; return true; end $$;
                 create index evil on usertable (ycsb_key) where evil(ycsb_key)",
            )
            .unwrap();
        server
            .execute_in(
                "d",
                "grant usage on schema pgfathom to files, plain; grant select on all tables in schema pgfathom, public to files, plain",
            )
            .unwrap();
        let is_sprung_by = |user: &str| server.log().contains(&format!("SPRUNG by {user}"));
        assert!(is_sprung_by("dbo"), "the trap works");
        for (user, spec) in [(SUPERUSER, d.clone()), ("files", d.clone().with_user("files"))] {
            let before = server.log().matches(&format!("SPRUNG by {user}")).count();
            let error = verify(&spec, false, false).expect_err("the owner is not trusted");
            let words = words(&error);
            assert!(words.contains("belongs to the role dbo"), "{user}: {words}");
            let error = load_ycsb(&spec, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap_err();
            assert!(
                matches!(&error, LoadError::NotTrusted { owner, .. } if owner == "dbo"),
                "{user}: {error:?}"
            );
            assert!(error.hint().unwrap().contains("-U dbo"), "{user}: {:?}", error.hint());
            let after = server.log().matches(&format!("SPRUNG by {user}")).count();
            assert_eq!(after, before, "{user}: {}", server.log());
        }
        // The owner, and plain sessions in the owner's database, go on as before.
        for spec in [as_dbo.clone(), d.with_user("plain")] {
            let found = verify(&spec, false, true).unwrap();
            assert_eq!(found.0, Verdict::Exact, "{found:?}");
        }
        load_ycsb(&as_dbo, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
    });
}

/// Policies neither hide a stranger nor make rows missing: without the right to see all rows there is no verdict.
#[test]
fn row_level_security_leaves_no_verdict_to_those_it_applies_to() {
    on_each(|server| {
        server
            .execute("create role app login; create role reader login; create role seer login bypassrls")
            .unwrap();
        server.execute("create database r owner app").unwrap();
        server.execute_in("r", "grant all on schema public to app").unwrap();
        let as_app = database(server, "r").with_user("app");
        load_ycsb(&as_app, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap();
        let grants = "grant usage on schema pgfathom to reader, seer; grant select on all tables in schema pgfathom, public to reader, seer;";
        server
            .execute_in(
                "r",
                &format!(
                    "{grants} alter table usertable enable row level security; \
            create policy own on usertable using (ycsb_key like 'user%'); \
            insert into usertable (ycsb_key) values ('stranger')"
                ),
            )
            .unwrap();
        for deep in [false, true] {
            // Whom policies do not apply to and the owner see all rows.
            for spec in [as_app.clone().with_user("seer"), as_app.clone()] {
                let (verdict, lines, _) = verify(&spec, false, deep).unwrap();
                assert_eq!(verdict, Verdict::Different, "{lines}");
                assert!(lines.contains("stranger: unknown row in usertable"), "{lines}");
            }
            let error = verify(&as_app.clone().with_user("reader"), false, deep).unwrap_err();
            assert!(matches!(error, VerifyError::RowSecurity { .. }), "{}", words(&error));
            assert!(error.hint().unwrap().contains("bypassrls"));
        }
        server.execute_in("r", "alter table usertable force row level security").unwrap();
        assert!(matches!(verify(&as_app, false, false), Err(VerifyError::RowSecurity { .. })));
        server.execute_in("r", "update pgfathom.dataset set loaded_at = null").unwrap();
        let error = load_ycsb(&as_app, &options(ROWS, 0), &Stop::new(), &mut Silent).unwrap_err();
        assert!(matches!(error, LoadError::RowSecurity { .. }), "{}", words(&error));
    });
}
