//! Who is not trusted gets no code into tables that a superuser fills, runs against and verifies: neither through tables that refer to them nor by what is attached later. And
//! what a node of a cluster gives to those who ask it is part of the verdict. On every PostgreSQL found.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::support;
use std::time::Duration;

use connect::ConnSpec;
use lab::throwaway::{Throwaway, ThrowawayCluster};
use load::progress::{LoadEvent, Phase};
use load::verify::{MirrorOptions, Verdict, VerifyError, VerifyOptions};
use load::{LoadError, Observer, Outcome, Progress, Stop};
use record::ProgressSample;
use support::cluster::cluster_of;
use support::tpcc::{load_tpcc, load_tpcc_on, verify_tpcc, verify_tpcc_on, warehouses};
use support::{
    Notes, Options, each_postgres, load_ycsb, load_ycsb_on, options, start, verify_ycsb, verify_ycsb_on,
    words,
};

fn verify(spec: &ConnSpec, is_tpcc: bool) -> Result<Verdict, VerifyError> {
    let report = if is_tpcc { verify_tpcc(spec, false) } else { verify_ycsb(spec, false) };
    report.map(|report| report.verdict())
}

/// Each statement is carried out in a copy of the database, and then verification has to refuse with these words.
fn refused(server: &Throwaway, template: &str, is_tpcc: bool, cases: &[(&str, &str)]) {
    for (number, (sql, expected)) in cases.iter().enumerate() {
        let name = format!("{template}{number}");
        // Large ones are copied as files, not page by page through the WAL.
        let strategy = if is_tpcc { "file_copy" } else { "wal_log" };
        server.execute(&format!("create database {name} template {template} strategy {strategy}")).unwrap();
        server.execute_in(&name, sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let spec = server.spec().with_dbname(&name);
        match verify(&spec, is_tpcc) {
            Err(error) => assert!(words(&error).contains(expected), "{sql}: {}", words(&error)),
            Ok(verdict) => panic!("{sql}: {verdict:?}"),
        }
        server.execute(&format!("drop database {name}")).unwrap();
    }
}

fn value_in(server: &Throwaway, database: &str, sql: &str) -> Option<String> {
    server.execute_in(database, sql).unwrap().into_iter().next()?.into_iter().next()?
}

const TRIGGER: &str =
    "create function evil() returns trigger language plpgsql as $$ begin return null; end $$;";

#[test]
fn tables_of_others_that_refer_to_ours_are_refused() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory").unwrap();
        server.execute("create database w").unwrap();
        load_tpcc(&server.spec().with_dbname("w"), &warehouses(1), &mut Notes::default()).unwrap();
        let prepared = "grant create on schema public to mallory; grant select, references on new_order to mallory; set role mallory;";
        let refer = "create table evil_no (o int, d int, w int, primary key (w, d, o), \
                     foreign key (w, d, o) references new_order (no_w_id, no_d_id, no_o_id) on delete cascade);";
        let revoke = "reset role; revoke references on new_order from mallory;";
        let own = format!(
            "{prepared}{refer}{TRIGGER} create trigger t after delete on evil_no for each row execute function evil(); {revoke}"
        );
        // The table that refers is the superuser's; what is attached to it, or refers to it, is not.
        let attached = format!(
            "{prepared}{TRIGGER} {revoke} {refer} create trigger t after delete on evil_no for each row execute function evil()"
        );
        let far = format!(
            "{prepared}{revoke}{refer} grant references on evil_no to mallory; set role mallory; \
             create table farther (w int, d int, o int references evil_other, foreign key (w, d, o) references evil_no on delete cascade); \
             reset role; revoke references on evil_no from mallory"
        )
        .replace(" references evil_other", "");
        let part = format!(
            "{prepared}{revoke} create table evil_no (o int, d int, w int, foreign key (w, d, o) references new_order on delete cascade) partition by list (w); \
             create table evil_no_1 partition of evil_no default; alter table evil_no_1 owner to mallory"
        )
        .replace("references new_order on", "references new_order (no_w_id, no_d_id, no_o_id) on");
        let right = format!("{prepared} reset role");
        let column = "grant references (no_o_id) on new_order to public";
        refused(
            &server,
            "w",
            true,
            &[
                (&own, "evil_no belongs to the role mallory"),
                (&attached, "evil_no: the trigger t uses function"),
                (&far, "farther belongs to the role mallory"),
                (&part, "evil_no_1 belongs to the role mallory"),
                (&right, "new_order: the role mallory has the right REFERENCES"),
                (column, "new_order: everybody has the right REFERENCES on the column no_o_id"),
            ],
        );
        // A superuser's own audit tables may refer to them.
        server.execute_in("w", &format!("create table mine (w int references warehouse); {TRIGGER} create trigger t after delete on mine for each row execute function evil()")).unwrap();
        assert_eq!(verify(&server.spec().with_dbname("w"), true).unwrap(), Verdict::Exact);
    });
}

#[test]
fn who_may_attach_code_later_is_refused() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory; create role grp; create role member login in role grp").unwrap();
        server.execute("create database y").unwrap();
        let spec = server.spec().with_dbname("y");
        load_ycsb(&spec, &options(500, 2), &Stop::new(), &mut Notes::default()).unwrap();
        refused(
            &server,
            "y",
            false,
            &[
                (
                    "grant trigger on usertable to mallory",
                    "usertable: the role mallory has the right TRIGGER",
                ),
                ("grant all on usertable_p1 to mallory", "usertable_p1: the role mallory has the right"),
                ("grant trigger on usertable to public", "usertable: everybody has the right TRIGGER"),
                ("grant references on usertable to mallory", "the right REFERENCES"),
                (
                    "grant trigger on pgfathom.chunk to mallory",
                    "chunk: the role mallory has the right TRIGGER",
                ),
                ("alter schema public owner to mallory", "the schema public belongs to the role mallory"),
                ("alter schema pgfathom owner to mallory", "the schema pgfathom belongs to the role mallory"),
            ],
        );
        // What is no right to attach anything stays as it is, and a role trusts those it is a member of.
        server
            .execute_in("y", "grant select, insert, update, delete, truncate on usertable to mallory")
            .unwrap();
        assert_eq!(verify(&spec, false).unwrap(), Verdict::Exact);
        server.execute("create database g owner member").unwrap();
        server.execute_in("g", "alter schema public owner to member").unwrap();
        let spec = server.spec().with_dbname("g").with_user("member");
        load_ycsb(&spec, &options(50, 0), &Stop::new(), &mut Notes::default()).unwrap();
        server
            .execute_in("g", "grant trigger on usertable to grp; grant usage on schema pgfathom to grp")
            .unwrap();
        assert_eq!(verify(&spec, false).unwrap(), Verdict::Exact);
    });
}

/// A superuser made the event trigger; whose its function is decides what it does when we make tables.
#[test]
fn a_database_whose_event_trigger_runs_code_of_another_role_gets_no_tables() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory login").unwrap();
        server.execute("create database e").unwrap();
        server
            .execute_in(
                "e",
                "create sequence public.ran; create function public.noted() returns event_trigger language plpgsql as \
                   $$ begin perform pg_catalog.nextval('public.ran'); end $$; alter function public.noted() owner to mallory; \
                 create event trigger noted on ddl_command_end execute function public.noted()",
            )
            .unwrap();
        let spec = server.spec().with_dbname("e");
        let load = |spec: &ConnSpec| load_ycsb(spec, &options(50, 0), &Stop::new(), &mut Notes::default());
        let ran = || value_in(&server, "e", "select is_called::text from public.ran");
        server.execute_in("e", "select setval('public.ran', 1, false)").unwrap();
        let error = load(&spec).expect_err("it is refused");
        let shown = words(&error);
        assert!(
            shown.contains("the event trigger noted uses public.noted()") && shown.contains("mallory"),
            "{shown}"
        );
        assert_eq!(ran().as_deref(), Some("false"), "nothing ran it");
        // The client cannot look at this disk, so the server runs df into a temporary table.
        let gone = server.socket_dir().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let mut own = std::process::Command::new("chown");
        own.arg("--reference").arg(server.socket_dir()).arg(&gone);
        assert!(own.status().unwrap().success());
        server.execute(&format!("create tablespace gone location '{}'", gone.display())).unwrap();
        std::fs::rename(&gone, server.socket_dir().join("moved")).unwrap();
        let asked = Options { keep_free_bytes: Some(1), tablespaces: vec!["gone".into()], ..options(50, 0) };
        let error = load_ycsb(&spec, &asked, &Stop::new(), &mut Notes::default()).expect_err("it is refused");
        assert!(words(&error).contains("the event trigger noted uses public.noted()"), "{}", words(&error));
        assert_eq!(ran().as_deref(), Some("false"), "not for df either");
        // A function of a superuser is trusted, as is a trigger that is off.
        server.execute_in("e", "alter event trigger noted disable").unwrap();
        load(&spec).expect("it loads");
        server
            .execute_in(
                "e",
                "alter event trigger noted enable; alter function public.noted() owner to current_user",
            )
            .unwrap();
        load(&spec).expect("it goes on");
    });
}

/// The functions of mallory that a superuser's objects lead to.
const HERS: &str = "create schema hers authorization mallory; set role mallory; \
     create function hers.f(text) returns text immutable language sql return $1; \
     create function hers.le(text, text) returns boolean immutable language plpgsql as 'begin return $1 <= $2; end'; \
     create function hers.cmp(text, text) returns int immutable language plpgsql as 'begin return 0; end'; \
     create table hers.log (key text); create view hers.seen as select hers.f('a') as key; reset role;";

/// What is attached belongs to a superuser, and so does what it calls; code of another role is further away.
#[test]
fn code_that_is_reached_through_objects_of_a_superuser_is_refused() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory").unwrap();
        server.execute("create database y").unwrap();
        let spec = server.spec().with_dbname("y");
        load_ycsb(&spec, &options(50, 0), &Stop::new(), &mut Notes::default()).unwrap();
        let with = |sql: &str| format!("{HERS} {sql}");
        let path = "create function public.{} returns {} immutable language plpgsql set search_path = {} as 'begin return f($1); end'; \
                    create index i on usertable (public.ix(field0))";
        let path = |schemas: &str| {
            path.replacen("{}", "ix(text)", 1).replacen("{}", "text", 1).replacen("{}", schemas, 1)
        };
        let cases = [
            (
                with(
                    "create function public.via(text) returns text immutable language sql return hers.f($1); create index i on usertable (public.via(field0))",
                ),
                "usertable: the index i uses function hers.f(text)",
            ),
            (
                with(
                    "create domain public.short as varchar(100) check (hers.f(value) <> ''); alter table usertable alter field0 type public.short",
                ),
                "uses function hers.f(text)",
            ),
            (
                with(
                    "create operator public.<== (leftarg = text, rightarg = text, function = hers.le); \
                      alter table usertable add constraint c check (field0 operator(public.<==) field0)",
                ),
                "usertable: the constraint c uses function hers.le(text,text)",
            ),
            (
                with(
                    "create operator class public.odd for type text using btree as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >, \
                      function 1 hers.cmp(text, text); create index i on usertable ((field0::text) public.odd)",
                ),
                "usertable: the index i uses function hers.cmp(text,text)",
            ),
            (
                with(
                    "create rule r as on delete to usertable do also insert into hers.log values (old.ycsb_key)",
                ),
                "usertable: the rule r uses table hers.log",
            ),
            (
                with("create policy p on usertable using (ycsb_key in (select key from hers.seen))"),
                "usertable: the policy p uses",
            ),
            (
                with(&path("pg_catalog, hers")),
                "usertable: the index i uses function public.ix(text), whose search_path has the schema hers, where the role mallory may make objects",
            ),
            (
                format!(
                    "create schema \"Wide, open\"; create function \"Wide, open\".f(text) returns text immutable language sql as 'select $1'; \
                         grant create on schema \"Wide, open\" to public; {}",
                    path("\"Wide, open\"")
                ),
                "whose search_path has the schema Wide, open, where everybody may make objects",
            ),
        ];
        let cases: Vec<(&str, &str)> =
            cases.iter().map(|(sql, expected)| (sql.as_str(), *expected)).collect();
        refused(&server, "y", false, &cases);
        // What superusers alone can change is trusted however far away it is.
        server
            .execute_in("y", &format!("create schema ours; create function ours.f(text) returns text immutable language sql as 'select $1'; \
                create domain public.short as text check (ours.f(value) <> ''); alter table usertable alter field1 type public.short; {}", path("ours, pg_catalog")))
            .unwrap();
        let error = verify(&spec, false).expect_err("the type of a column is another one");
        assert!(words(&error).contains("field1") && !words(&error).contains("uses"), "{}", words(&error));
        server.execute_in("y", "alter table usertable alter field1 type varchar(100)").unwrap();
        assert_eq!(verify(&spec, false).unwrap(), Verdict::Exact);
    });
}

/// Triggers for the sessions that replicate run for ours, too, where the database makes all sessions such ones; and a function of a superuser may look its
/// names up where another role makes objects.
#[test]
fn event_triggers_that_lead_to_another_role_are_refused() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory login").unwrap();
        server.execute("create database e").unwrap();
        let sql =
            |text: &str| server.execute_in("e", text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let spec = server.spec().with_dbname("e");
        let refused = |expected: &str, remedy: &str| {
            let error = load_ycsb(&spec, &options(50, 0), &Stop::new(), &mut Notes::default())
                .expect_err("it is refused");
            assert!(words(&error).contains(expected), "{}", words(&error));
            assert!(error.hint().is_some_and(|hint| hint.contains(remedy)), "{:?}", error.hint());
            sql("reset search_path; do $$ begin assert (select not is_called from public.ran); end $$");
        };
        sql("create sequence public.ran; grant all on sequence public.ran to public; create schema hers authorization mallory;
             create function public.ev() returns event_trigger language plpgsql set search_path = pg_catalog, hers as 'begin perform noted(); end';
             set role mallory; create function hers.noted() returns void language sql as 'select pg_catalog.nextval(''public.ran'')'; reset role;
             create event trigger noted on ddl_command_start execute function public.ev()");
        sql(
            "alter event trigger noted disable; select setval('public.ran', 1, false); alter event trigger noted enable",
        );
        refused(
            "the event trigger noted uses public.ev(), whose search_path has the schema hers, where the role mallory may make objects",
            "set search_path = pg_catalog, pg_temp",
        );
        sql("alter event trigger noted disable; alter function public.ev() reset search_path; alter function public.ev() owner to mallory;
             alter event trigger noted enable replica; alter database e set session_replication_role = replica");
        refused("the event trigger noted uses public.ev(), which belongs to the role mallory", "-U mallory");
        sql("alter database e reset session_replication_role");
        load_ycsb(&spec, &options(50, 0), &Stop::new(), &mut Notes::default())
            .expect("it does not run for this session");
    });
}

#[test]
fn default_privileges_let_nobody_attach_code_to_new_tables() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory").unwrap();
        let rights = "select string_agg(distinct a.privilege_type, ' ') from pg_class c, aclexplode(c.relacl) a \
                      where a.grantee = 'mallory'::regrole and c.relkind in ('r', 'p')";
        for (name, is_tpcc) in [("y", false), ("w", true)] {
            server.execute(&format!("create database {name}")).unwrap();
            let prepare = "alter default privileges grant all on tables to mallory; alter default privileges grant all on schemas to mallory";
            server.execute_in(name, prepare).unwrap();
            let (spec, mut notes) = (server.spec().with_dbname(name), Notes::default());
            let report = match is_tpcc {
                true => load_tpcc(&spec, &warehouses(1), &mut notes),
                false => load_ycsb(&spec, &options(500, 2), &Stop::new(), &mut notes),
            };
            assert_eq!(report.unwrap().outcome, Outcome::Complete);
            let note = notes
                .events
                .iter()
                .find(|event| event.message.starts_with("default privileges gave mallory"));
            assert!(note.is_some(), "{:?}", notes.events);
            let left = value_in(&server, name, rights).unwrap();
            assert!(left.contains("SELECT") && left.contains("INSERT"), "{left}");
            assert!(!left.contains("TRIGGER") && !left.contains("REFERENCES"), "{left}");
            let may_create = "select has_schema_privilege('mallory', 'pgfathom', 'create')::text";
            assert_eq!(value_in(&server, name, may_create).as_deref(), Some("false"));
            assert_eq!(verify(&spec, is_tpcc).unwrap(), Verdict::Exact);
        }
    });
}

#[test]
fn a_schema_of_somebody_else_gets_no_tables() {
    each_postgres(|installation| {
        let server = start(installation);
        server.execute("create role mallory").unwrap();
        server.execute("create database y").unwrap();
        let user = server.spec().user.clone();
        server.execute_in("y", &format!("create schema \"{user}\" authorization mallory")).unwrap();
        let spec = server.spec().with_dbname("y");
        let named = |error: LoadError| {
            assert!(
                matches!(&error, LoadError::NotTrusted { owner, .. } if owner == "mallory"),
                "{}",
                words(&error)
            );
            assert!(words(&error).contains(&format!("the schema {user} belongs to the role mallory")));
        };
        named(load_ycsb(&spec, &options(50, 0), &Stop::new(), &mut Notes::default()).unwrap_err());
        named(load_tpcc(&spec, &warehouses(1), &mut Notes::default()).unwrap_err());
        assert_eq!(value_in(&server, "y", "select to_regnamespace('pgfathom')::text"), None);
    });
}

/// Something is attached while rows are loaded: by a trusted role, as nobody else can.
struct Attacher<'a> {
    server: &'a Throwaway,
    is_done: bool,
}

impl Observer for Attacher<'_> {
    fn progress(&mut self, _: &Progress, _: &ProgressSample, _: Duration) {}

    fn event(&mut self, event: &LoadEvent) {
        let is_copied = event.kind == record::event::PHASE && event.message == Phase::Index.as_str();
        if is_copied && !std::mem::replace(&mut self.is_done, true) {
            let trigger =
                "create trigger late before update on usertable for each row execute function evil()";
            self.server.execute(&format!("{TRIGGER} {trigger}")).unwrap();
        }
    }
}

#[test]
fn a_load_never_ends_over_tables_that_got_a_trigger_meanwhile() {
    each_postgres(|installation| {
        let server = start(installation);
        let mut attacher = Attacher { server: &server, is_done: false };
        let error = load_ycsb(&server.spec(), &options(500, 2), &Stop::new(), &mut attacher).unwrap_err();
        assert!(words(&error).contains("the trigger late"), "{}", words(&error));
        assert_eq!(server.value("select loaded_at::text from pgfathom.dataset").unwrap(), None);
        server.execute("drop trigger late on usertable").unwrap();
        let report =
            load_ycsb(&server.spec(), &options(500, 2), &Stop::new(), &mut Notes::default()).unwrap();
        assert_eq!(report.outcome, Outcome::Complete);
    });
}

#[test]
fn a_space_that_cannot_be_kept_free_is_refused_before_anything_is_made() {
    each_postgres(|installation| {
        let server = start(installation);
        let asked = Options { keep_free_bytes: Some(999 << 50), ..options(10, 0) };
        let error = load_ycsb(&server.spec(), &asked, &Stop::new(), &mut Notes::default()).unwrap_err();
        assert!(matches!(&error, LoadError::Option { flag: "--keep-free", .. }), "{}", words(&error));
        assert!(words(&error).contains("--keep-free requires"), "{}", words(&error));
        assert_eq!(server.value("select to_regnamespace('pgfathom')::text").unwrap(), None);
        assert_eq!(server.value("select to_regclass('usertable')::text").unwrap(), None);
        // One that is complete has nothing to write.
        load_ycsb(&server.spec(), &options(10, 0), &Stop::new(), &mut Notes::default()).unwrap();
        let again = load_ycsb(&server.spec(), &asked, &Stop::new(), &mut Notes::default()).unwrap();
        assert_eq!(again.outcome, Outcome::AlreadyComplete);
    });
}

fn verify_on(nodes: &ThrowawayCluster, is_tpcc: bool, deep: bool) -> (Verdict, String) {
    let stop = Stop::new();
    let mirror = MirrorOptions { lag_limit: Duration::from_secs(5), standbys: false };
    let options = VerifyOptions { mirror, ..VerifyOptions::new(deep, 1, &stop) };
    let cluster = cluster_of(nodes);
    let report = if is_tpcc { verify_tpcc_on(&cluster, deep) } else { verify_ycsb_on(&cluster, &options) };
    let report = report.unwrap();
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    (report.verdict(), lines.join("\n"))
}

#[test]
fn a_node_that_gives_other_rows_or_none_is_never_exact() {
    each_postgres(|installation| {
        let nodes = ThrowawayCluster::sharded(installation, 2, 2).unwrap();
        let mut notes = Notes::default();
        let asked = Options { partitions: None, ..options(500, 0) };
        load_ycsb_on(&cluster_of(&nodes), &asked, &Stop::new(), &mut notes).unwrap();
        let with_tpcc = testing::is_thorough("TPC-C through nodes that give other rows: YCSB's table only");
        if with_tpcc {
            load_tpcc_on(&cluster_of(&nodes), &warehouses(2), &mut notes).unwrap();
        }
        let swap = |table: &str, one: &str, other: &str| {
            (
                format!(
                    "alter foreign table {table} alter {one} options (add column_name '{other}'), alter {other} options (add column_name '{one}')"
                ),
                format!(
                    "alter foreign table {table} alter {one} options (drop column_name), alter {other} options (drop column_name)"
                ),
            )
        };
        let trigger = |table: &str| {
            format!(
                "{TRIGGER} create trigger lose before insert on {table} for each row execute function evil()"
            )
        };
        let table = "usertable_p1";
        for (number, (sql, undo, expected)) in [
            (
                swap(table, "field0", "field1").0,
                swap(table, "field0", "field1").1,
                "its column field0 is mapped to field1",
            ),
            (
                trigger(table),
                "drop function evil() cascade".to_owned(),
                "its trigger lose may change or drop",
            ),
            (
                "alter server n2 options (add updatable 'false')".to_owned(),
                "alter server n2 options (drop updatable)".to_owned(),
                "accepts no writes",
            ),
            (
                format!("alter foreign table {table} options (add updatable 'false')"),
                format!("alter foreign table {table} options (drop updatable)"),
                "accepts no writes",
            ),
            (
                format!("alter foreign table {table} options (set table_name 'nowhere')"),
                format!("alter foreign table {table} options (set table_name '{table}')"),
                "the catalog of n1 points to nowhere on n2, but there is no such table",
            ),
            ("select 1".to_owned(), "select 1".to_owned(), ""),
        ]
        .into_iter()
        .enumerate()
        {
            nodes.node(0).execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            for &deep in
                testing::in_turn("each damage verified fast and deep: in turn", number, &[false, true])
            {
                let (verdict, lines) = verify_on(&nodes, false, deep);
                let is_right = match expected {
                    "" => verdict == Verdict::Exact,
                    _ => verdict == Verdict::Different && lines.contains(table) && lines.contains(expected),
                };
                assert!(is_right, "{sql}: {verdict:?} {lines}");
            }
            nodes.node(0).execute(&undo).unwrap_or_else(|error| panic!("{undo}: {error:?}"));
        }
        // The tables of TPC-C are reached in the same way.
        if with_tpcc {
            assert_eq!(verify_on(&nodes, true, false), (Verdict::Exact, String::new()));
            nodes.node(0).execute(&swap("district_p1", "d_street_1", "d_street_2").0).unwrap();
            nodes.node(0).execute(&trigger("stock_p1")).unwrap();
            let (verdict, lines) = verify_on(&nodes, true, false);
            assert_eq!(verdict, Verdict::Different, "{lines}");
            assert!(
                lines.contains("district_p1 on n1: its column d_street_1 is mapped to d_street_2"),
                "{lines}"
            );
            assert!(lines.contains("stock_p1 on n1: its trigger lose may change or drop"), "{lines}");
        }
        // At last, as it takes the way for good.
        nodes
            .node(0)
            .execute(
                "do $$ declare u record; begin for u in select usename from pg_user_mappings where srvname = 'n2' loop \
                 execute format('drop user mapping for %s server n2', case u.usename when 'public' then 'public' else quote_ident(u.usename) end); end loop; end $$"
            )
            .unwrap();
        for is_tpcc in [false, true].into_iter().take(1 + usize::from(with_tpcc)) {
            let (verdict, lines) = verify_on(&nodes, is_tpcc, false);
            assert_eq!(verdict, Verdict::CannotTell, "{lines}");
            assert_eq!(
                lines.matches("on n1: this role has no user mapping for the foreign servers n2:").count(),
                1,
                "{lines}"
            );
        }
    });
}

/// Locks that keep loaders apart, as a plain role can take them: of a new dataset, the first in its database.
const LOCKS: [(&str, &str, bool); 4] = [
    ("select pg_advisory_lock(1885824609, 1)", "making tables", false),
    ("select pg_advisory_lock(1885824609, 2)", "keys and statistics", false),
    (
        "select count(pg_advisory_lock((28776::int8 << 48) | (1::int8 << 24) | g)) from generate_series(0, 9) g",
        "a chunk",
        false,
    ),
    (
        "select count(pg_advisory_lock((28775::int8 << 48) | (1::int8 << 15) | g)) from generate_series(0, 9) g",
        "a partition",
        true,
    ),
];

#[test]
fn a_lock_of_ours_that_a_role_has_which_cannot_load_ends_the_wait_and_names_it() {
    let server = start(&lab::throwaway::installations()[0]);
    server.execute("create role mallory login").unwrap();
    std::thread::scope(|scope| {
        for (number, (lock, what, freeze)) in LOCKS.into_iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let name = format!("locks{number}");
                server.execute(&format!("create database {name}")).unwrap();
                let spec = server.spec().with_dbname(&name);
                let mallory = spec.clone().with_user("mallory").with_application_name("hers\nerror: x");
                let mut holder = connect::control::connect(&mallory).unwrap();
                holder.batch_execute(lock).unwrap();
                let mut wanted = options(500, 1);
                wanted.method = freeze.then_some(load::Method::Freeze);
                let load = || load_ycsb(&spec, &wanted, &Stop::new(), &mut Notes::default());
                let error = load().unwrap_err();
                let words = words(&error);
                assert!(words.contains(&format!("has the lock for {what}")), "{words}");
                assert!(words.contains("role mallory") && !words.contains('\n'), "{words}");
                let hint = error.hint().unwrap();
                let (_, remedy) = hint.split_once(": ").unwrap();
                let remedy = remedy.split(';').next().unwrap();
                assert!(remedy.starts_with("select pg_terminate_backend("), "{hint}");
                server.execute_in(&name, remedy).unwrap();
                load().unwrap();
                assert_eq!(verify(&spec, false).unwrap(), Verdict::Exact, "{what}");
            });
        }
    });
}
