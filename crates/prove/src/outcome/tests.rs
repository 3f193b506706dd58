use super::*;
use crate::client::read_reply;

/// One message of a server.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn report(kind: u8, severity: &str, code: &str) -> Vec<u8> {
    message(kind, format!("S{severity}\0V{severity}\0C{code}\0Msome words\0\0").as_bytes())
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// What a client makes of these bytes, in whatever pieces they come; without ReadyForQuery the connection ends after them.
fn judge(engine: Engine, at: At, messages: &[Vec<u8>]) -> Outcome {
    let bytes: Vec<u8> = messages.concat();
    let mut outcomes = Vec::new();
    for piece in [1, 3, bytes.len().max(1)] {
        let (mut received, mut reply) = (Vec::new(), Reply::default());
        let mut is_whole = false;
        for chunk in bytes.chunks(piece) {
            received.extend_from_slice(chunk);
            is_whole = read_reply(&mut received, &mut reply).unwrap();
        }
        let ended = if is_whole {
            of_reply(engine, at, &reply)
        } else {
            let cause = std::io::ErrorKind::UnexpectedEof.into();
            of_broken(engine, at, &Broken { was_sent: true, reply: Box::new(reply), waits: None, cause })
        };
        outcomes.push(ended.outcome);
    }
    assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "the pieces decide: {outcomes:?}");
    outcomes[0]
}

const NARROW: At = At::Commit { wide: false };
const WIDE: At = At::Commit { wide: true };

#[test]
fn tags_warnings_codes_and_engines_decide() {
    let [postgres, fdw_sharded, citus, cockroach] =
        ["postgres", "fdw-sharded", "citus", "cockroach"].map(|name| Engine::parse(name).unwrap());
    use Outcome::{Fail, Info, Ok, OkWeak, Partial};
    let e = |severity: &str, code: &str| report(b'E', severity, code);
    let n = |severity: &str, code: &str| report(b'N', severity, code);
    type Row = (&'static str, Engine, At, Vec<Vec<u8>>, Outcome);
    let rows: [Row; 27] = [
        ("a plain commit", postgres, NARROW, vec![complete("COMMIT"), ready(b'I')], Ok),
        (
            "a statement that commits by itself",
            postgres,
            NARROW,
            vec![complete("INSERT 0 1"), ready(b'I')],
            Ok,
        ),
        ("a failed block", postgres, NARROW, vec![complete("ROLLBACK"), ready(b'I')], Fail),
        (
            "a failed block on an engine that is never sure",
            citus,
            WIDE,
            vec![complete("ROLLBACK"), ready(b'I')],
            Fail,
        ),
        (
            "a cancelled wait",
            postgres,
            NARROW,
            vec![n("WARNING", "01000"), complete("COMMIT"), ready(b'I')],
            OkWeak,
        ),
        (
            "words that are no warning",
            postgres,
            NARROW,
            vec![n("NOTICE", "00000"), complete("COMMIT"), ready(b'I')],
            Ok,
        ),
        (
            "Citus could not commit on a worker yet",
            citus,
            WIDE,
            vec![n("WARNING", "08006"), complete("COMMIT"), ready(b'I')],
            OkWeak,
        ),
        (
            "the block was lost by a pooler",
            postgres,
            NARROW,
            vec![n("WARNING", "25P01"), complete("COMMIT"), ready(b'I')],
            Info,
        ),
        ("refused at COMMIT", postgres, NARROW, vec![e("ERROR", "40001"), ready(b'I')], Fail),
        ("a deferred constraint", postgres, NARROW, vec![e("ERROR", "23503"), ready(b'I')], Fail),
        (
            "any error of PostgreSQL's own commit",
            postgres,
            NARROW,
            vec![e("ERROR", "53100"), ready(b'I')],
            Fail,
        ),
        ("a demoted server", postgres, NARROW, vec![e("ERROR", "25006"), ready(b'I')], Fail),
        (
            "an engine whose errors are not known",
            cockroach,
            WIDE,
            vec![e("ERROR", "XXUUU"), ready(b'I')],
            Info,
        ),
        ("ambiguous in so many words", cockroach, WIDE, vec![e("ERROR", "40003"), ready(b'I')], Info),
        ("a retry of CockroachDB", cockroach, WIDE, vec![e("ERROR", "40001"), ready(b'I')], Fail),
        ("fdw, several nodes", fdw_sharded, WIDE, vec![e("ERROR", "40001"), ready(b'I')], Partial),
        (
            "fdw, several nodes, one of them gone",
            fdw_sharded,
            WIDE,
            vec![e("ERROR", "08006"), ready(b'I')],
            Partial,
        ),
        ("fdw, one node", fdw_sharded, NARROW, vec![e("ERROR", "40001"), ready(b'I')], Fail),
        (
            "fdw, one node, and that one gone",
            fdw_sharded,
            NARROW,
            vec![e("ERROR", "08006"), ready(b'I')],
            Info,
        ),
        ("no reply at all", postgres, NARROW, vec![], Info),
        ("the tag came, the end did not", postgres, NARROW, vec![complete("COMMIT")], Info),
        ("terminated, with the last words", postgres, NARROW, vec![e("FATAL", "57P01")], Info),
        ("terminated in the wait for a standby", postgres, NARROW, vec![n("WARNING", "57P01")], Info),
        ("another backend crashed", postgres, NARROW, vec![n("WARNING", "57P02")], Info),
        ("shutting down at COMMIT", postgres, NARROW, vec![e("FATAL", "57P02")], Info),
        ("an error before COMMIT", postgres, At::BeforeCommit, vec![e("ERROR", "57014"), ready(b'E')], Fail),
        ("the end before COMMIT", fdw_sharded, At::BeforeCommit, vec![e("FATAL", "57P01")], Fail),
    ];
    for (what, engine, at, messages, expected) in rows {
        assert_eq!(judge(engine, at, &messages), expected, "{what}");
    }
}

/// A message that could not be handed over whole cannot have been read.
#[test]
fn a_commit_that_was_not_sent_has_failed() {
    let broken = |was_sent| Broken {
        was_sent,
        reply: Box::default(),
        waits: None,
        cause: std::io::ErrorKind::BrokenPipe.into(),
    };
    assert_eq!(of_broken(Engine::default(), NARROW, &broken(false)).outcome, Outcome::Fail);
    assert_eq!(of_broken(Engine::default(), NARROW, &broken(true)).outcome, Outcome::Info);
    assert_eq!(of_broken(Engine::default(), At::BeforeCommit, &broken(true)).outcome, Outcome::Fail);
}

/// Rows and tags of several statements in one request belong together, and the rows of a statement that failed to none.
#[test]
fn replies_keep_statements_apart() {
    let row = |text: &str| {
        let mut body = vec![0, 1];
        body.extend_from_slice(&(text.len() as u32).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
        message(b'D', &body)
    };
    let mut bytes = [
        complete("BEGIN"),
        row("7"),
        row("8"),
        complete("SELECT 2"),
        row("9"),
        report(b'E', "ERROR", "22012"),
        ready(b'E'),
        // The beginning of the next reply stays.
        complete("ROLLBACK"),
    ]
    .concat();
    let mut reply = Reply::default();
    assert!(read_reply(&mut bytes, &mut reply).unwrap());
    assert_eq!(reply.done.len(), 2);
    assert_eq!((reply.tag(), reply.rows().len()), ("SELECT 2", 2));
    assert_eq!(reply.number(), Some(7));
    assert_eq!(reply.error.as_ref().map(|error| error.sqlstate), Some(SqlState(*b"22012")));
    assert_eq!(reply.status, Some(wire::backend::TransactionStatus::Failed));
    assert_eq!(bytes, complete("ROLLBACK"));
}
