//! What a plain role puts into a database under the names that engines and extensions use is neither called nor believed, and no address that she
//! chooses gets a connection: every verb is run by a superuser in a database full of decoys.

use crate::labs::{self, TrapLab};
use crate::support;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lab::local::Topology;
use lab::throwaway::{SUPERUSER, Throwaway, ThrowawayCluster, installations};
use support::Ended;

const DECOYS: &str = include_str!("trap/decoys.sql");
/// What the code of a decoy writes to the server's log when a superuser runs it.
const SPRUNG: &str = "SPRUNG by a superuser";
/// Where a test begins to look at the server's log.
const MARK: &str = "from here on no decoy may be sprung";

/// Counts who comes to a loopback port.
struct Listener {
    port: u16,
    guests: Arc<AtomicUsize>,
}

impl Listener {
    fn start() -> Listener {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let guests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&guests);
        // It ends with the process.
        std::thread::spawn(move || {
            for guest in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(guest);
            }
        });
        Listener { port, guests }
    }
}

struct Decoys<'a> {
    lab: TrapLab<'a>,
    listener: Listener,
}

/// Decoys in the server's log behind its mark.
fn sprung(server: &Throwaway) -> Vec<String> {
    let log = server.log();
    let log = log.rsplit_once(MARK).map_or(log.as_str(), |(_, rest)| rest);
    log.lines().filter(|line| line.contains(SPRUNG)).map(str::to_owned).collect()
}

impl<'a> Decoys<'a> {
    fn of(server: &'a Throwaway) -> Decoys<'a> {
        Decoys { lab: TrapLab::of(server, sprung), listener: Listener::start() }
    }

    fn at(connection: Vec<String>, servers: Vec<&'a Throwaway>) -> Decoys<'a> {
        Decoys { lab: TrapLab::new(connection, servers, sprung), listener: Listener::start() }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.lab.command(arguments);
        command.env("PGPASSWORD", "secret");
        command
    }

    /// Types a command, which must spring nothing, call nowhere and name no other engine.
    fn type_in(&self, arguments: &str) -> Ended {
        let ended = self.lab.typed(self.command(arguments), arguments);
        let output = format!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
        assert_eq!(self.listener.guests.load(Ordering::SeqCst), 0, "{output}: it called the decoys' address");
        assert!(!output.contains("cannot list the nodes"), "{output}");
        for engine in ["shardman", "citus", "cockroach", "yugabyte", "greenplum", "multimaster"] {
            assert!(!output.to_lowercase().contains(engine), "{engine}: {output}");
        }
        ended
    }

    fn expect(&self, exit: i32, arguments: &str) -> Ended {
        labs::ended_with(exit, self.type_in(arguments), arguments)
    }

    /// Has the role mallory put decoys into the database, and checks that they work.
    fn plant(&self) {
        let sql = DECOYS.replace("{port}", &self.listener.port.to_string());
        for server in &self.lab.servers {
            server.execute(&sql).unwrap_or_else(|error| panic!("the decoys: {error:?}"));
            if server.installation().version.major >= 16 {
                server
                    .execute(&format!(
                        "grant pg_create_subscription to mallory; set role mallory;
                         create subscription theirs connection 'host=127.0.0.1 port={} dbname=postgres password=x' publication p
                         with (connect = false, slot_name = none, origin = none)",
                        self.listener.port
                    ))
                    .unwrap_or_else(|error| panic!("the subscription: {error:?}"));
            }
            for decoy in ["mtm.nodes()", "shardman.repgroups", "pglogical.node", "yb_servers()"] {
                server
                    .execute(&format!("select * from {decoy}"))
                    .unwrap_or_else(|error| panic!("{decoy}: {error:?}"));
            }
            assert!(server.log().matches(SPRUNG).count() >= 4, "the decoys do not work: {}", server.log());
            server.execute(&format!("do $$ begin raise log '{MARK}'; end $$")).expect("the server does it");
        }
    }
}

#[test]
fn no_verb_believes_what_a_plain_role_calls_like_an_engine_or_an_extension() {
    for installation in &installations() {
        let server =
            Throwaway::start(installation, &[("max_prepared_transactions", "8"), ("wal_level", "logical")])
                .expect("a throwaway cluster starts");
        let decoys = Decoys::of(&server);
        decoys.plant();
        let loaded = decoys.expect(0, "load ycsb --rows 500 --partitions 2");
        let left_out = "the foreign server theirs of the role mallory is not used as a node";
        assert!(loaded.stderr.contains(left_out), "{}", loaded.stderr);
        assert!(loaded.stderr.contains("--cluster"), "{}", loaded.stderr);
        if installation.version.major >= 16 {
            let left_out = "subscriptions that this session does not trust are not used to find nodes: theirs of the role mallory";
            assert!(loaded.stderr.contains(left_out), "{}", loaded.stderr);
        }
        decoys.expect(0, "verify ycsb");
        decoys.expect(0, "plan load ycsb --rows 100k");
        decoys.expect(0, "run -b ycsb-a -c 2 -T 1 --poller epoll");
        let watched = decoys.expect(0, "watch -T 2 -o watched");
        let record = std::fs::read_to_string(decoys.lab.folder.path().join("watched/run.json"))
            .unwrap_or_else(|error| panic!("{error}: {}{}", watched.stdout, watched.stderr));
        assert!(record.contains(r#""engine": "postgres""#), "{record}");
        let check = "check --size 32MiB --probe-time 20ms --depths 1 --skip memory,processor,network";
        for verb in
            ["prove hermitage", "prove bank -T 1", "prove twin -T 1", "prove tpcc", "matrix -T 1", check]
        {
            let ended = decoys.type_in(verb);
            assert_ne!(ended.exit, Some(101), "{verb}: {}", ended.stderr);
        }
    }
}

#[test]
fn no_password_goes_to_the_address_of_a_foreign_server_of_a_plain_role() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    let decoys = Decoys::of(&server);
    let sql = |text: &str| server.execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    // A partition of the superuser's own table on a server that a plain role owns.
    sql(&format!(
        "create role mallory; create extension postgres_fdw;
         create server theirs foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{}', dbname 'x');
         create table mine (i int) partition by hash (i);
         create foreign table mine_0 partition of mine for values with (modulus 1, remainder 0) server theirs",
        decoys.listener.port
    ));
    // Trusted, it is a node, and is called: so the listener works.
    let ended: Ended = decoys.command("verify ycsb").output().expect("the command starts").into();
    assert!(decoys.listener.guests.swap(0, Ordering::SeqCst) > 0, "{}{}", ended.stdout, ended.stderr);
    sql("alter server theirs owner to mallory");
    for verb in ["verify ycsb", "load ycsb --rows 10", "prove bank -T 1", "prove hermitage", "matrix -T 1"] {
        let ended = decoys.type_in(verb);
        let output = format!("{verb}: {}{}", ended.stdout, ended.stderr);
        assert!(!matches!(ended.exit, Some(0 | 101)), "{output}");
        assert!(output.contains("the role mallory chose the address"), "{output}");
        assert!(output.contains("--cluster"), "{output}");
    }
    decoys.expect(0, "watch -T 2");
    decoys.expect(0, "watch -T 1");
    // Her server, and her tables there: nothing of ours is meant, and nothing is asked there.
    sql("alter table mine owner to mallory; alter table mine_0 owner to mallory");
    let ended = decoys.expect(0, "load ycsb --rows 10");
    assert!(ended.stderr.contains("is not used as a node"), "{}", ended.stderr);
}

#[test]
fn the_plain_owner_of_a_database_can_do_everything_and_a_superuser_is_told_to_connect_as_him() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway cluster starts");
    server.execute("create role dbo login").expect("the server does it");
    server.execute("create database postgres_of_dbo owner dbo").expect("the server does it");
    let (host, port) = (server.socket_dir().display().to_string(), server.port().to_string());
    let as_role = |role: &str| {
        let connection = ["-h", &host, "-p", &port, "-U", role, "-d", "postgres_of_dbo"].map(str::to_owned);
        Decoys::at(connection.to_vec(), vec![&server])
    };
    let decoys = as_role("dbo");
    decoys.expect(0, "load ycsb --rows 500 --partitions 2");
    decoys.expect(0, "verify ycsb --deep");
    decoys.expect(0, "run -b ycsb-a -c 2 -T 1 --poller epoll");
    decoys.expect(0, "watch -T 1");
    decoys.expect(0, "load tpcc -s 1 -j 2");
    for verb in ["prove hermitage", "prove bank -T 1", "prove tpcc"] {
        let ended = decoys.type_in(verb);
        let output = format!("{verb}: {}{}", ended.stdout, ended.stderr);
        assert!(
            !output.contains("does not trust") && !matches!(ended.exit, Some(1 | 2 | 101)),
            "{:?} {output}",
            ended.exit
        );
    }
    decoys.expect(0, "load ycsb --rows 600 --partitions 2 --restart");
    let superuser = as_role(SUPERUSER);
    let is_refused = |session: &Decoys<'_>, verb: &str| {
        let ended = session.type_in(verb);
        let output = format!("{verb}: {}{}", ended.stdout, ended.stderr);
        assert!(output.contains("belongs to the role dbo") && output.contains("-U dbo"), "{output}");
    };
    let verbs = ["verify ycsb", "verify tpcc", "load ycsb --rows 600", "prove tpcc"];
    verbs.iter().for_each(|verb| is_refused(&superuser, verb));
    // A role that monitors may see what the owner of this database may not: its rights are not for the owner's code.
    server.execute("create role monitor login; grant pg_monitor to monitor").expect("the server does it");
    is_refused(&as_role("monitor"), "verify ycsb");
    // The owner makes all sessions take the owner's role, from which a function could go back.
    server.execute("alter database postgres_of_dbo set role to dbo").expect("the server does it");
    verbs.iter().for_each(|verb| is_refused(&superuser, verb));
}

#[test]
fn matrix_reads_statistics_of_statements_only_from_the_extension() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let settings =
        [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track_utility", "on")];
    let topology = Topology::Sharded { nodes: 2, partitions: 4 };
    let servers =
        ThrowawayCluster::start(&installation, &topology, &settings).expect("a throwaway cluster starts");
    let decoys = Decoys::at(
        vec!["--cluster".to_owned(), servers.cluster_toml().display().to_string()],
        servers.nodes().iter().collect(),
    );
    decoys.expect(0, "load ycsb --rows 500 -j 2");
    for server in servers.nodes() {
        // The release that has no view of its own for entries that were thrown out.
        server
            .execute(
                "create extension pg_stat_statements version '1.8' schema public;
                 create role mallory; grant create on schema public to mallory; set role mallory;
                 create function public.spring() returns boolean language plpgsql as
                 $$ begin if (select rolsuper from pg_roles where rolname = current_user) then raise log 'SPRUNG by a superuser'; end if;
                 return true; end $$;
                 create view public.pg_stat_statements_info as select 0::int8 as dealloc, now() as stats_reset where public.spring();
                 grant select on public.pg_stat_statements_info to public",
            )
            .expect("the decoy can be made");
        server.execute("select dealloc from public.pg_stat_statements_info").expect("it can be read");
        assert!(server.log().contains(SPRUNG), "the decoy does not work");
        server.execute(&format!("do $$ begin raise log '{MARK}'; end $$")).expect("the server does it");
    }
    let ended = decoys.type_in("matrix -T 1 -o measured");
    let output = format!("{}{}", ended.stdout, ended.stderr);
    // Updates of one row may collide at REPEATABLE READ on so small a table.
    assert!(matches!(ended.exit, Some(0 | 2)), "{output}");
    let record =
        std::fs::read_to_string(decoys.lab.folder.path().join("measured/run.json")).expect("a record");
    assert!(
        record.contains(r#""round_trips_by": "counted""#),
        "the extension still counts round trips: {output}{record}"
    );
}
