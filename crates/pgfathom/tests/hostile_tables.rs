//! `run` of what is built in, by a superuser: tables of a plain role, and what such a role attaches to those of others.

use crate::labs::{self, TrapLab};
use lab::throwaway::{Throwaway, installations};

/// What the trap writes to the server's log when a superuser runs it.
const SPRUNG: &str = "SPRUNG by a superuser";

fn sprung(server: &Throwaway) -> Vec<String> {
    server.log().lines().filter(|line| line.contains(SPRUNG)).map(str::to_owned).collect()
}

/// A function of mallory that a superuser must not run.
const TRAP: &str = "create role mallory login; create schema mallory authorization mallory; set role mallory;
    create function mallory.spring() returns trigger language plpgsql as $$ begin
      if (select rolsuper from pg_roles where rolname = current_user) then raise log 'SPRUNG by a superuser'; end if; return new; end $$;
    create function mallory.plus(int, int) returns int language plpgsql as $$ begin
      if (select rolsuper from pg_roles where rolname = current_user) then raise log 'SPRUNG by a superuser'; end if; return $1; end $$;
    create operator mallory.+ (leftarg = int, rightarg = int, function = mallory.plus); reset role";

#[test]
fn a_run_of_what_is_built_in_drives_no_tables_of_others() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    let lab = TrapLab::of(&server, sprung);
    let type_in = |arguments: &str| lab.typed(lab.command(arguments), arguments);
    let sql = |text: &str| server.execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    labs::ended_with(0, type_in("load tpcb -s 1"), "load");
    sql(TRAP);
    let runs = ["run -b tpcb-like -T 1 -c 1", "run -b simple-update -T 1 -c 1", "run -b tpcb -T 1 -c 1"];
    for run in runs {
        labs::ended_with(0, type_in(run), run);
    }
    let refused = |runs: &[&str], words: &str| {
        for run in runs {
            let ended = type_in(run);
            let output = format!("{run}: {}{}", ended.stdout, ended.stderr);
            assert!(ended.exit == Some(1) && ended.stderr.contains(words), "{:?} {output}", ended.exit);
            assert!(ended.stderr.contains("hint: "), "{output}");
        }
    };
    sql(
        "create trigger spring before update on pgbench_accounts for each row execute function mallory.spring()",
    );
    refused(&runs, "belongs to the role mallory");
    sql("drop trigger spring on pgbench_accounts; grant trigger on pgbench_accounts to mallory");
    refused(&runs, "mallory has the right TRIGGER");
    // What is found in front of pg_catalog.
    sql(
        "revoke trigger on pgbench_accounts from mallory; alter database postgres set search_path = mallory, pg_catalog, public",
    );
    refused(&runs[..2], "mallory");
    sql("alter database postgres reset search_path");
    for run in runs {
        labs::ended_with(0, type_in(run), run);
    }
    // Tables of hers, found first.
    sql("create database theirs owner mallory");
    let (host, port) = (server.socket_dir().display().to_string(), server.port().to_string());
    let connection =
        ["-h", &host, "-p", &port, "-U", lab::throwaway::SUPERUSER, "-d", "theirs"].map(str::to_owned);
    server
        .execute_in("theirs", "set role mallory; create schema s; create table s.pgbench_branches (bid int, bbalance int, filler text);
           create table s.pgbench_tellers (tid int, bid int, tbalance int, filler text); create table s.pgbench_accounts (aid int, bid int, abalance int, filler text);
           create table s.pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler text); insert into s.pgbench_branches values (1, 0);
           alter database theirs set search_path = s")
        .expect("her tables");
    let theirs = TrapLab::new(connection.to_vec(), vec![&server], sprung);
    for run in runs {
        let ended = theirs.typed(theirs.command(run), run);
        assert!(
            ended.exit == Some(1) && ended.stderr.contains("mallory"),
            "{run}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
}

/// Of the owner of the tables: what is driven would not be the tables.
#[test]
fn rules_and_views_in_the_place_of_tables_are_named() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway server starts");
    let lab = TrapLab::of(&server, sprung);
    let sql = |text: &str| drop(server.execute(text).unwrap_or_else(|error| panic!("{text}: {error}")));
    lab.expect(0, "load ycsb --rows 300 -q --watch off");
    lab.expect(0, "load tpcb -s 1 -q --watch off");
    let refused = |runs: &[&str], words: &str| {
        for run in runs {
            let ended = lab.expect(1, run);
            assert!(
                ended.stderr.contains(words) && ended.stderr.contains("hint: "),
                "{run}: {}",
                ended.stderr
            );
        }
    };
    let ycsb = ["run -b ycsb-a -T 1", "matrix -T 1", "run -b ycsb-a -c 1,2 -T 100ms"];
    sql("create rule silent as on update to usertable do instead nothing");
    refused(&ycsb, "the rule silent of usertable replaces what is written to it");
    sql(
        "alter table usertable disable rule silent; create rule beside as on update to usertable do also notify beside",
    );
    lab.expect(0, "run -b ycsb-a -t 20 --watch off");
    sql("create rule silent as on update to pgbench_tellers do instead nothing");
    let tpcb = ["run -b tpcb-like -T 1", "run -b tpcb -T 1"];
    refused(&tpcb, "the rule silent of pgbench_tellers replaces what is written to it");
    sql(
        "drop rule silent on pgbench_tellers; alter table pgbench_accounts rename to theirs; create view pgbench_accounts as select * from theirs",
    );
    refused(&tpcb, "public.pgbench_accounts is a view, not a table");
    refused(&["prove tpcb"], "public.pgbench_accounts is a view, not a table");
}
