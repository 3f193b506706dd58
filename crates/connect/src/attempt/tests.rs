use std::time::Duration;

use wire::error::SqlState;
use wire::startup::StartupError;

use super::error::peer_hint;
use super::*;
use crate::Secret;
use crate::os_user::OsUser;

fn server_text(code: &[u8; 5], message: &str) -> Cause {
    Cause::Startup(StartupError::Server(wire::error::ServerError {
        severity: "FATAL".to_owned(),
        sqlstate: SqlState(*code),
        message: message.to_owned(),
        detail: None,
        hint: None,
        position: None,
    }))
}

fn error(cause: Cause) -> ConnectError {
    let mut spec = ConnSpec::new("db.test", 5433, "ann", "shop");
    spec.password = Some(Secret::new("tiger"));
    ConnectError::new(&spec, vec![Attempt::new(&spec.hosts[0], None, cause)])
}

#[test]
fn a_password_that_was_withheld_is_the_reason_for_the_refusal() {
    let missing = || Cause::Startup(StartupError::PasswordMissing { method: "password" });
    let hint = |withheld: Option<&str>, cause: Cause| {
        let mut spec = ConnSpec::new("db.test", 5433, "ann", "shop");
        spec.withheld = withheld.map(str::to_owned);
        ConnectError::new(&spec, vec![Attempt::new(&spec.hosts[0], None, cause)]).hint().expect("a hint")
    };
    for cause in [missing, || server_text(b"28P01", "password authentication failed for user \"ann\"")] {
        let found = hint(Some("c.toml is not yours (it belongs to user 9)"), cause());
        assert!(found.starts_with("c.toml is not yours (it belongs to user 9), so PGPASSWORD"), "{found}");
        assert!(!hint(None, cause()).contains("yours"));
    }
}

#[test]
fn every_refusal_has_its_hint_and_its_fate() {
    // (code, the server's message, the hint, whether another host is tried, whether it is transient)
    for (code, words, hint, next_host, transient) in [
        (b"28P01", "password authentication failed for user \"ann\"", "check the password", false, false),
        (
            b"28000",
            "no pg_hba.conf entry for host \"::1\", user \"ann\"",
            "needs a line for role \"ann\"",
            false,
            false,
        ),
        (b"28000", "Peer authentication failed for user \"ann\"", "-h localhost", false, false),
        (b"28000", "Ident authentication failed for user \"ann\"", "server's log", false, false),
        (b"28000", "role \"ann\" does not exist", "createuser ann", false, false),
        (b"28000", "connection requires a valid client certificate", "sslcert", false, false),
        (b"3D000", "database \"shop\" does not exist", "CREATE DATABASE \"shop\"", false, false),
        (b"42501", "permission denied for database \"shop\"", "GRANT CONNECT", false, false),
        (b"53300", "sorry, too many clients already", "max_connections", false, true),
        (
            b"53300",
            "too many connections for role \"ann\"",
            "ALTER ROLE \"ann\" CONNECTION LIMIT",
            false,
            true,
        ),
        (
            b"53300",
            "too many connections for database \"shop\"",
            "ALTER DATABASE \"shop\" CONNECTION",
            false,
            true,
        ),
        (
            b"58P01",
            "could not access file \"nosuch\": No such file or directory",
            "local_preload_libraries",
            false,
            false,
        ),
        (b"57P03", "the database system is starting up", "in a moment", true, true),
        (b"57P03", "the database system is in recovery mode", "in a moment", true, true),
        (b"57P01", "terminating connection due to administrator command", "in a moment", false, true),
        (b"55000", "database \"shop\" is not currently accepting connections", "datallowconn", false, false),
    ] {
        let cause = server_text(code, words);
        assert_eq!(!cause.is_final(), next_host, "{words}");
        assert!(cause.may_depend_on_encryption());
        let error = error(cause);
        assert_eq!(error.is_transient(), transient, "{words}");
        assert_eq!(error.sqlstate(), std::str::from_utf8(code).ok());
        let found = error.hint().unwrap();
        assert!(found.contains(hint), "{words}: {found}");
        assert!(!format!("{error} {error:?} {found}").contains("tiger"));
    }
}

/// A node of Multimaster that is no part of its cluster lets sessions begin and refuses what they request. The next host may be one.
#[test]
fn a_host_that_refuses_the_first_query_is_left_unless_the_query_is_wrong() {
    for (code, words, next_host) in [
        (b"XX000", "[MTM] multimaster node is not online: current status catchup", true),
        (b"57P03", "the database system is starting up", true),
        (b"57P01", "terminating connection due to administrator command", true),
        (b"42704", "unrecognized configuration parameter \"no.such\"", false),
        (b"22023", "invalid value for parameter \"synchronous_commit\"", false),
        (b"42501", "permission denied to set parameter", false),
    ] {
        let Cause::Startup(StartupError::Server(error)) = server_text(code, words) else { unreachable!() };
        assert_eq!(!Cause::Requested(Box::new(error)).is_final(), next_host, "{words}");
    }
}

#[test]
fn errors_of_the_system_read_as_a_part_of_the_sentence() {
    let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
    let error = error(Cause::Connect(refused));
    assert_eq!(error.to_string(), "cannot connect to db.test:5433: connection refused");
    assert!(error.is_transient());
    let spec = ConnSpec::new("a", 1, "u", "d");
    let address = Endpoint::Tcp("10.0.0.1:1".parse().unwrap());
    let attempts = vec![
        Attempt::new(&spec.hosts[0], Some(&address), Cause::Timeout(3)),
        Attempt::new(&ConnSpec::new("/tmp", 5432, "", "").hosts[0], None, Cause::Closed),
    ];
    assert_eq!(
        ConnectError::new(&spec, attempts).to_string(),
        "cannot connect to database \"d\"\n    a:1 (10.0.0.1): timeout expired after 3 s\n    \
         socket /tmp/.s.PGSQL.5432: the server closed the connection unexpectedly"
    );
}

/// A fake connector with a script: the outcome of each attempt.
struct Script(std::cell::RefCell<std::collections::VecDeque<(Encryption, Result<(), Failure>)>>);

impl Plane for Script {
    type Session = Encryption;

    fn open(
        &self,
        _: &ConnSpec,
        _: &Candidate,
        encryption: Encryption,
        _: Option<&Tls>,
    ) -> Result<Encryption, Failure> {
        let (expected, outcome) =
            self.0.borrow_mut().pop_front().expect("an attempt more than the script has");
        assert_eq!(encryption, expected);
        outcome.map(|()| encryption)
    }

    fn begin_work(&self, _: &mut Self::Session) {}

    fn role(&self, _: &ConnSpec, _: &mut Encryption) -> Result<Role, Cause> {
        Ok(Role { in_recovery: false, read_only: false })
    }
}

#[test]
fn attempts_follow_the_mode() {
    use Encryption::{Demanded, IfOffered, Never};
    let refused =
        |encrypted| Err(Failure { cause: server_text(b"28000", "no pg_hba.conf entry"), encrypted });
    let gone = || Err(Failure { cause: Cause::Timeout(1), encrypted: true });
    let own = || Err(Failure { cause: Cause::Startup(StartupError::ChannelBinding("x")), encrypted: true });
    // (mode, the script, whether a session comes out)
    let cases = vec![
        (SslMode::Disable, vec![(Never, refused(false))], false),
        (SslMode::Allow, vec![(Never, Ok(()))], true),
        (SslMode::Allow, vec![(Never, refused(false)), (Demanded, Ok(()))], true),
        (SslMode::Prefer, vec![(IfOffered, refused(true)), (Never, Ok(()))], true),
        // The server had no TLS: a second attempt without it would be the same.
        (SslMode::Prefer, vec![(IfOffered, refused(false))], false),
        (SslMode::Prefer, vec![(IfOffered, own())], false),
        (SslMode::Prefer, vec![(IfOffered, gone())], false),
        (SslMode::Require, vec![(Demanded, refused(true))], false),
    ];
    for (mode, script, works) in cases {
        let mut spec = ConnSpec::new("127.0.0.1", 1, "u", "d");
        spec.sslmode = mode;
        spec.connect_timeout = Some(Duration::from_secs(1));
        let plane = Script(std::cell::RefCell::new(script.into()));
        assert_eq!(connect(&spec, &plane).is_ok(), works, "{mode:?}");
        assert!(plane.0.borrow().is_empty(), "{mode:?}: fewer attempts than expected");
    }
}

#[test]
fn a_user_that_does_not_exist_is_not_proposed() {
    assert!(peer_hint("ann", true).contains("sudo -u ann"));
    let without = peer_hint("ann", false);
    assert!(!without.contains("sudo") && without.contains("pg_ident.conf"), "{without}");
    assert!(OsUser::exists("root"));
    assert!(!OsUser::exists("no-such-user-of-pgfathom") && !OsUser::exists("-s"));
}

/// As a statement, after a pooler has dropped it from the startup packet, as in the startup packet.
#[test]
fn a_setting_that_a_pooler_drops_has_a_hint_whenever_it_is_refused() {
    let refused = wire::error::ServerError {
        severity: "ERROR".to_owned(),
        sqlstate: SqlState(*b"55P02"),
        message: "parameter \"pgactive.do_not_replicate\" cannot be set after connection start".to_owned(),
        detail: None,
        hint: None,
        position: None,
    };
    for cause in [Cause::Requested(Box::new(refused.clone())), Cause::Startup(StartupError::Server(refused))]
    {
        let hint = error(cause).hint().expect("a hint");
        assert!(hint.contains("a pooler in between") && hint.contains("own host and port"), "{hint}");
    }
}
