use super::*;
use lab::throwaway::{Throwaway, installations};

pub(crate) fn server_error(code: &[u8; 5]) -> ServerError {
    ServerError {
        severity: "ERROR".into(),
        sqlstate: SqlState(*code),
        message: "no".into(),
        detail: None,
        hint: None,
        position: None,
    }
}

#[test]
fn refusals_name_both_values_and_the_flag() {
    let error = LoadError::OtherDataset {
        dataset: "ycsb".into(),
        what: "seed",
        existing: "1".into(),
        requested: "2".into(),
        matching: "--seed 1".into(),
    };
    assert_eq!(error.to_string(), "the dataset ycsb in this database has seed 1, but this load specifies 2");
    assert!(error.hint().unwrap().contains("--seed 1") && error.hint().unwrap().contains("--restart"));
}

#[test]
fn what_a_server_refuses_often_has_a_hint() {
    let stream =
        |code| LoadError::Stream { doing: "loading chunk 3".into(), source: Box::new(server_error(code)) };
    for code in [b"42501", b"53200", b"53300", b"25006", b"57014"] {
        assert!(stream(code).hint().is_some());
    }
    assert_eq!(stream(b"XX000").hint(), None, "there is no hint for an internal error");
    let full = LoadError::DiskFull { done: 3, total: 9, source: Box::new(server_error(b"53100")) };
    assert_eq!(full.to_string(), "the server's disk is full (3 of 9 chunks are committed)");
    assert!(full.hint().unwrap().contains("same command again"));
}

#[test]
fn a_server_that_refuses_everything_while_it_catches_up_is_waited_for() {
    let catching_up = || {
        let message = "[MTM] multimaster node is not online: current status catchup".into();
        let source = Box::new(ServerError { message, ..server_error(b"XX000") });
        LoadError::Stream { doing: "setting up the session".into(), source }
    };
    let lost = |engine: &str| engines::Engine::parse(engine).expect("a profile").node_lost;
    assert!(catching_up().may_come_back(lost("mtm")) && catching_up().at("m1").may_come_back(lost("mtm")));
    assert!(!catching_up().may_come_back(lost("citus")), "an internal error");
    let starting = Box::new(ServerError { severity: "FATAL".into(), ..server_error(b"57P03") });
    assert!(LoadError::Stream { doing: "x".into(), source: starting }.may_come_back(lost("citus")));
}

#[test]
fn a_node_that_dies_is_waited_for_and_one_that_refuses_is_not() {
    let citus = engines::Engine::parse("citus").expect("a profile").node_lost;
    let is_away = |code: &[u8; 5], message: &str| is_of_absent_node(SqlState(*code), message, citus);
    assert!(is_away(b"XX000", "server closed the connection unexpectedly"));
    assert!(is_away(b"08006", "connection to the remote node w1:5433 failed: Connection refused"));
    assert!(is_away(b"57P03", "the database system is starting up"));
    for refused in [
        "fe_sendauth: no password supplied",
        "password authentication failed for user",
        "no pg_hba.conf entry for host",
    ] {
        assert!(
            !is_away(b"08006", &format!("connection to the remote node w1:5433 failed: {refused}")),
            "{refused}"
        );
    }
    assert!(!is_away(b"XX000", "cache lookup failed for relation 7"));
}

#[test]
fn only_what_can_be_dropped_is_offered_to_force() {
    let foreign = |droppable| LoadError::ForeignTable { name: "usertable".into(), kind: "table", droppable };
    assert!(foreign(true).hint().unwrap().contains("--force usertable"));
    assert!(!foreign(false).hint().unwrap().contains("--force"));
}

/// The limits of time for sessions and transactions have codes of their own.
#[test]
fn a_session_that_the_server_ends_is_a_lost_connection_with_its_words() {
    let server = Throwaway::start(&installations()[0], &[]).unwrap();
    // Each limit with a statement that leaves the session where the limit applies.
    for (limit, statement, code) in [
        ("idle_session_timeout", "select 1", b"57P05"),
        ("idle_in_transaction_session_timeout", "begin", b"25P03"),
    ] {
        let mut control = connect::control::connect(&server.spec()).unwrap();
        control.batch_execute(&format!("set {limit} = '1ms'")).unwrap();
        let mut lost = None;
        testing::wait_for("the end of the session", || {
            lost = control.batch_execute(statement).err();
            lost.is_some()
        });
        let error = LoadError::sql("waiting", lost.unwrap());
        assert!(error.is_connection_lost(), "{error:?}");
        assert_eq!(error.sqlstate(), Some(SqlState(*code)), "{error:?}");
    }
}
