//! Both planes against real servers, without TLS: what can be reached, what is told when it cannot.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use connect::conninfo::{self, Request, SessionAttrs, Sources};
use connect::{Cause, ConnSpec, ConnectError, Secret, control, hot};
use lab::throwaway::{Options, StopMode, Throwaway, installations};
use testing::on_each;

/// Both planes; the error of each, or none.
fn both(spec: &ConnSpec) -> [Result<(), ConnectError>; 2] {
    [hot::connect(spec).map(drop), control::connect(spec).map(drop)]
}

fn refused(spec: &ConnSpec, message: &str, hint: &str) {
    for (plane, result) in ["hot", "control"].into_iter().zip(both(spec)) {
        let error = result.expect_err(message);
        let (text, found) = (error.to_string(), error.hint().unwrap_or_default());
        assert!(text.contains(message), "{plane}: {text}\n  does not say: {message}");
        assert!(found.contains(hint), "{plane}: {text}\n  hint {found:?} does not say: {hint}");
    }
}

#[test]
fn both_planes_reach_the_server_and_know_it() {
    on_each(&installations(), |installation| {
        let cluster = Options { tcp: true, ..Options::default() }.start(installation).unwrap();
        for spec in [cluster.spec(), cluster.spec_tcp()] {
            let mut session = hot::connect(&spec).unwrap();
            let version = session.parameters()["server_version"].clone();
            assert!(version.starts_with(&installation.version.major.to_string()), "{version}");
            assert_eq!(session.parameters()["client_encoding"], "UTF8");
            let rows = session
                .simple_query("select pg_backend_pid(), current_setting('application_name'), null")
                .unwrap();
            assert_eq!(rows[0][0].as_deref(), Some(session.backend_pid().unwrap().to_string().as_bytes()));
            assert_eq!(rows[0][1].as_deref(), Some(b"pgfathom".as_slice()));
            assert_eq!(rows[0][2], None);
            let error = session.simple_query("select 1/0").unwrap_err();
            assert!(error.to_string().contains("22012"), "{error}");

            let mut client = control::connect(&spec).unwrap();
            assert_eq!(client.server_version_num().unwrap() / 10_000, installation.version.major);
            assert_eq!(client.query_one("select 40 + 2", &[]).unwrap().get::<_, i32>(0), 42);
            assert_eq!((client.host_index(), session.host_index()), (0, 0));
            assert!(!client.link().is_encrypted());
        }
    });
}

#[test]
fn a_hot_connection_can_be_taken_apart_and_cancelled() {
    let cluster = Throwaway::start(&installations()[0], &[]).unwrap();
    let mut session = hot::connect(&cluster.spec()).unwrap();
    let token = session.cancel_token();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let sleeps = "select exists (select from pg_stat_activity where wait_event = 'PgSleep')";
            testing::wait_for("the sleep", || cluster.value(sleeps).unwrap().as_deref() == Some("t"));
            token.cancel().unwrap();
        });
        session.simple_query("select pg_sleep(300)").unwrap_err()
    });
    assert!(error.to_string().contains("57014"), "{error}");

    let mut parts = session.into_parts();
    assert!(parts.received.is_empty() && parts.tls.is_none());
    let mut out = Vec::new();
    wire::frontend::query(&mut out, "select 7");
    parts.socket.write_all(&out).unwrap();
    let mut reply = [0; 200];
    let count = parts.socket.read(&mut reply).unwrap();
    assert!(reply[..count].windows(8).any(|bytes| bytes == b"SELECT 1"));
}

#[test]
fn settings_travel_with_the_session() {
    let cluster = Throwaway::start(&installations()[0], &[]).unwrap();
    let mut spec = cluster.spec().with_application_name("a name");
    spec.options = Some("-c statement_timeout=1234".into());
    spec.session_settings =
        vec![("timezone".into(), "Asia/Tokyo".into()), ("datestyle".into(), "SQL, DMY".into())];
    let sql = "select concat_ws('|', current_setting('application_name'), current_setting('statement_timeout'), \
               current_setting('timezone'), current_setting('datestyle'))";
    let expected = "a name|1234ms|Asia/Tokyo|SQL, DMY";
    let hot = hot::connect(&spec).unwrap().simple_query(sql).unwrap();
    assert_eq!(hot[0][0].as_deref(), Some(expected.as_bytes()));
    let row = control::connect(&spec).unwrap().query_one(sql, &[]).unwrap();
    assert_eq!(row.get::<_, &str>(0), expected);
}

#[test]
fn refusals_are_explained() {
    on_each(&installations(), |installation| {
        let hba = "local closed all reject\nlocal all ann scram-sha-256\nlocal all bob md5\nlocal all all trust\n\
                   host all ann 127.0.0.1/32 scram-sha-256\n";
        let options = Options {
            tcp: true,
            hba: Some(hba.into()),
            settings: vec![
                ("max_connections".into(), "12".into()),
                ("superuser_reserved_connections".into(), "3".into()),
            ],
            ..Options::default()
        };
        let mut cluster = options.start(installation).unwrap();
        cluster.execute("create role ann login password 'tiger'; create role dan login").unwrap();
        cluster.execute("set password_encryption = 'md5'; create role bob login password 'tiger'").unwrap();
        for sql in [
            "create database closed",
            "create database shut allow_connections false",
            "create database private",
        ] {
            cluster.execute(sql).unwrap();
        }
        cluster.execute("revoke connect on database private from public").unwrap();
        let spec = cluster.spec();
        let with = |user: &str, password: &str| {
            let mut spec = spec.clone().with_user(user);
            spec.password = Some(Secret::new(password));
            spec
        };
        assert!(both(&with("ann", "tiger")).iter().all(Result::is_ok));
        assert!(both(&with("bob", "tiger")).iter().all(Result::is_ok));
        refused(
            &with("ann", "lion"),
            "password authentication failed for user \"ann\"",
            "check the password of role \"ann\"",
        );
        refused(
            &with("bob", "lion"),
            "password authentication failed for user \"bob\"",
            "check the password of role \"bob\"",
        );
        refused(&with("ann", ""), "requests a password", "PGPASSWORD");
        refused(
            &spec.clone().with_user("nobody_here"),
            "role \"nobody_here\" does not exist",
            "createuser nobody_here",
        );
        refused(
            &spec.clone().with_dbname("nowhere"),
            "database \"nowhere\" does not exist",
            "CREATE DATABASE \"nowhere\"",
        );
        refused(&spec.clone().with_dbname("closed"), "pg_hba.conf rejects", "rejects role");
        refused(&spec.clone().with_dbname("shut"), "not currently accepting connections", "datallowconn");
        refused(
            &spec.clone().with_user("dan").with_dbname("private"),
            "permission denied for database",
            "GRANT CONNECT",
        );
        refused(&cluster.spec_tcp(), "no pg_hba.conf entry", "needs a line for role \"postgres\"");
        let mut demanding = cluster.spec_tcp();
        demanding.sslmode = conninfo::SslMode::Require;
        refused(&demanding, "does not support TLS, but sslmode=require", "switch ssl on");
        let mut bound = with("ann", "tiger");
        bound.channel_binding = conninfo::ChannelBindingMode::Require;
        refused(&bound, "channel_binding=require, but", "scram-sha-256");
        let mut picky = with("bob", "tiger");
        picky.require_auth = conninfo::AuthMethods::EMPTY.with(conninfo::AuthMethod::ScramSha256);
        refused(&picky, "requests md5 authentication, which require_auth does not allow", "pg_hba.conf");
        if installation.version.major >= 16 {
            cluster.execute("set scram_iterations = 200000; alter role ann password 'tiger'").unwrap();
            refused(&with("ann", "tiger"), "iteration count exceeds", "scram_iterations");
        }
        let mut peer = spec.clone();
        peer.require_peer = Some("daemon".into());
        refused(&peer, "requirepeer specifies \"daemon\"", "requirepeer=");

        let held: Vec<_> = (0..30).map_while(|_| hot::connect(&spec.clone().with_user("dan")).ok()).collect();
        assert!(held.len() < 30);
        refused(
            &spec.clone().with_user("dan"),
            "remaining connection slots are reserved",
            "raise max_connections",
        );
        drop(held);

        cluster.stop(StopMode::Fast).unwrap();
        refused(&spec, "no such file or directory", "no server listens there");
        refused(&cluster.spec_tcp(), "connection refused", "no server listens there");
    });
}

#[test]
fn names_and_silent_servers_are_explained() {
    refused(
        &ConnSpec::new("no-such-host.invalid", 5432, "u", "d"),
        "could not be resolved",
        "check the name",
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = ConnSpec::new("127.0.0.1", silent.local_addr().unwrap().port(), "u", "d");
    spec.connect_timeout = Some(Duration::from_secs(1));
    refused(&spec, "timeout expired after 1 s", "firewall");

    // Somebody else's protocol, in place of the answer to SSLRequest and in place of the answer to the startup message.
    spec.connect_timeout = Some(Duration::from_secs(20));
    for (mode, words) in
        [(conninfo::SslMode::Disable, "not a PostgreSQL server"), (conninfo::SslMode::Prefer, "")]
    {
        spec.sslmode = mode;
        let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        spec.hosts[0].port = web.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = web.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        let error = hot::connect(&spec).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint().is_some());
        server.join().unwrap();
    }
}

#[test]
fn several_hosts_are_tried_in_order() {
    let installation = &installations()[0];
    let first = Throwaway::start(installation, &[]).unwrap();
    let second = Throwaway::start(installation, &[("default_transaction_read_only", "on")]).unwrap();
    let mut spec = first.spec();
    spec.hosts =
        [ConnSpec::new("/nowhere", 5432, "", "").hosts, second.spec().hosts, first.spec().hosts].concat();
    let index = |spec: &ConnSpec| {
        let (a, b) = (hot::connect(spec).unwrap().host_index(), control::connect(spec).unwrap().host_index());
        assert_eq!(a, b);
        a
    };
    assert_eq!(index(&spec), 1);
    for (wanted, expected) in [
        (SessionAttrs::ReadWrite, 2),
        (SessionAttrs::ReadOnly, 1),
        (SessionAttrs::Primary, 1),
        (SessionAttrs::PreferStandby, 1),
    ] {
        spec.target_session_attrs = wanted;
        assert_eq!(index(&spec), expected, "{wanted:?}");
    }
    spec.target_session_attrs = SessionAttrs::Standby;
    for result in both(&spec) {
        let error = result.unwrap_err();
        assert_eq!(error.attempts.len(), 3, "{error}");
        assert!(matches!(error.cause(), Some(Cause::SessionAttrs { .. })), "{error}");
        assert!(error.to_string().contains("not in hot standby mode"), "{error}");
        assert!(error.is_transient());
    }
    // Who refuses us speaks for all: the third host would let this role in.
    spec.target_session_attrs = SessionAttrs::Any;
    second.write_file("pg_hba.conf", b"local all all reject\n").unwrap();
    second.reload().unwrap();
    testing::wait_for("the new pg_hba.conf", || hot::connect(&second.spec()).is_err());
    for result in both(&spec) {
        let error = result.unwrap_err();
        assert_eq!(error.attempts.len(), 2, "{error}");
    }
    spec.load_balance_hosts = conninfo::LoadBalance::Random;
    spec.hosts = vec![first.spec().hosts[0].clone(); 2];
    let seen: std::collections::BTreeSet<usize> =
        (0..40).map(|_| hot::connect(&spec).unwrap().host_index()).collect();
    assert_eq!(seen.len(), 2, "a fair choice misses a host with a chance of 2 in 10^12");
}

#[test]
fn psql_and_we_agree_on_what_wins() {
    let psql = match testing::needs::client_program("psql") {
        Ok(psql) => psql,
        Err(lack) => return testing::skip(&lack),
    };
    let cluster = Throwaway::start(&installations()[0], &[]).unwrap();
    cluster.execute("create role ann login superuser").unwrap();
    for name in ["ann", "string", "environment"] {
        cluster.execute(&format!("create database {name}")).unwrap();
    }
    let dir = cluster.socket_dir().display().to_string();
    let string = format!("host={dir} user=postgres dbname=string");
    let uri = format!("postgresql://ann@/string?host={dir}");
    let port = cluster.port().to_string();
    /// Flags and environment.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 6] = [
        (&["-h", &dir, "-U", "ann"], &[]),
        (&["-h", &dir, "-U", "ann"], &[("PGDATABASE", "environment")]),
        (&["-h", "/nowhere", "-U", "ann", "-d", &string], &[]),
        (&["-h", "/nowhere", "-p", &port, "-d", &uri], &[("PGUSER", "postgres")]),
        (&["-d", "environment"], &[("PGHOST", &dir), ("PGUSER", "ann")]),
        (&["-d", "user=ann dbname=''"], &[("PGHOST", &dir), ("PGDATABASE", "environment")]),
    ];
    for (flags, env) in cases {
        let output = std::process::Command::new(&psql)
            .args(flags)
            .args(["-XAtc", "select current_user || ' ' || current_database()"])
            .env_clear()
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let theirs = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut request = Request::default();
        for pair in flags.chunks(2) {
            let value = Some(pair[1].to_owned());
            match pair[0] {
                "-h" => request.host = value,
                "-p" => request.port = value,
                "-U" => request.user = value,
                _ => request.dbname = value,
            }
        }
        let lookup = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let spec =
            conninfo::resolve(&request, &Sources { env: &lookup, ..Sources::of_process() }).unwrap().spec;
        let rows = hot::connect(&spec)
            .unwrap()
            .simple_query("select current_user || ' ' || current_database()")
            .unwrap();
        let ours = String::from_utf8(rows[0][0].clone().unwrap()).unwrap();
        assert_eq!(ours, theirs, "{flags:?} {env:?}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The message of the server does not say where the setting comes from.
#[test]
fn options_that_the_server_refuses_are_named_as_such() {
    let cluster = Throwaway::start(&installations()[0], &[]).unwrap();
    for (options, message) in [
        ("-c bogus=1", "unrecognized configuration parameter"),
        ("-c work_mem=much", "invalid value for parameter"),
        ("-c wal_level=logical", "cannot be changed"),
        ("--bogus", "requires a value"),
    ] {
        let spec = ConnSpec { options: Some(options.to_owned()), ..cluster.spec() };
        refused(&spec, message, "PGOPTIONS");
    }
}

/// Commits that wait for a standby, and locks of others, look like a program that hangs: what keeps them is named.
#[test]
fn a_note_tells_what_a_query_waits_for() {
    let notes = Arc::new(Mutex::new(Vec::<String>::new()));
    let noted = Arc::clone(&notes);
    connect::when_slow(move |words| noted.lock().unwrap().push(words.to_owned()));
    let server = Throwaway::start(&installations()[0], &[("synchronous_standby_names", "away")]).unwrap();
    let mut holder = control::connect(&server.spec()).unwrap();
    holder.batch_execute("set synchronous_commit = local; create table t ()").unwrap();
    holder.batch_execute("begin; lock t").unwrap();
    let mut waiters = [(); 2].map(|()| control::connect(&server.spec()).unwrap());
    let pids = waiters
        .each_mut()
        .map(|waiter| waiter.query_one("select pg_catalog.pg_backend_pid()", &[]).unwrap().get::<_, i32>(0));
    std::thread::scope(|scope| {
        for (waiter, sql) in waiters.iter_mut().zip(["create table u ()", "lock t"]) {
            scope.spawn(move || waiter.batch_execute(&format!("begin; {sql}; commit")));
        }
        let all = [
            "standbys (synchronous_standby_names is 'away'): none of them is connected",
            "a lock (relation) behind session ",
        ];
        testing::wait_for("both notes", || {
            let notes = notes.lock().unwrap();
            all.iter().all(|words| notes.iter().any(|note| note.contains(words)))
        });
        let of_lock = notes.lock().unwrap().iter().find(|note| note.contains("relation")).cloned().unwrap();
        assert!(of_lock.contains(" of pgfathom, idle in transaction"), "{of_lock}");
        for pid in pids {
            holder.query("select pg_catalog.pg_cancel_backend($1)", &[&pid]).unwrap();
        }
    });
}
