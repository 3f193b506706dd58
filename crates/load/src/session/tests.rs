//! A scripted server: its replies are queued beforehand, what it receives is kept.

use super::*;

/// `replies` is given out in pieces of `piece` bytes; `readable` is true while something is left.
#[derive(Debug)]
struct Script {
    replies: VecDeque<u8>,
    piece: usize,
    received: Vec<u8>,
    /// Writes fail once this many bytes were received.
    hangs_up_after: usize,
}

impl Read for Script {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.piece.min(out.len()).min(self.replies.len());
        for slot in &mut out[..bytes] {
            *slot = self.replies.pop_front().unwrap();
        }
        Ok(bytes)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.received.len() + bytes.len() > self.hangs_up_after {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.received.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Script {
    fn readable(&self) -> io::Result<bool> {
        Ok(!self.replies.is_empty())
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn complete(tag_text: &str, status: u8) -> Vec<u8> {
    [message(b'C', format!("{tag_text}\0").as_bytes()), message(b'Z', &[status])].concat()
}

fn refused(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mno\0\0").as_bytes())
}

fn session(replies: &[Vec<u8>], piece: usize) -> Session<Script> {
    let replies = replies.concat().into();
    Session::new(Script { replies, piece, received: Vec::new(), hangs_up_after: usize::MAX })
}

fn copy_accepted() -> Vec<u8> {
    message(b'G', &[1, 0, 0])
}

#[test]
fn a_reply_may_arrive_in_any_pieces() {
    for piece in [1, 2, 3, 7, 1000] {
        let notice = message(b'N', &vec![b'x'; 3 * INPUT_BYTES]);
        let mut session = session(
            &[notice, message(b'C', b"BEGIN\0"), complete("INSERT 0 1", b'T'), complete("COMMIT", b'I')],
            piece,
        );
        let reply = session.execute("begin; insert").unwrap();
        assert_eq!(reply, Reply { rows: Some(1), counts: [1, 0, 0, 0], status: TransactionStatus::Active });
        let reply = session.execute("commit").unwrap();
        assert_eq!(reply, Reply { rows: None, counts: [0; 4], status: TransactionStatus::Idle });
    }
}

#[test]
fn copies_are_sent_without_waiting_and_counted_in_order() {
    let mut session =
        session(&[copy_accepted(), complete("COPY 2", b'T'), copy_accepted(), complete("COPY 3", b'T')], 4);
    // Nothing is readable for the script's pace: take all of it away and give it back after the data was sent.
    let replies = std::mem::take(&mut session.socket.replies);
    for rows in [2, 3] {
        session.begin_copy("copy x").unwrap();
        session.send(b"<rows>", rows).unwrap();
        assert_eq!(session.end_copy().unwrap(), rows);
    }
    assert_eq!(session.owed.len(), 2);
    session.socket.replies = replies;
    session.settle(0).unwrap();
    let received = String::from_utf8_lossy(&session.socket.received).into_owned();
    assert_eq!(received.matches("copy x").count(), 2);
    assert_eq!(received.matches("PGCOPY").count(), 2);
    assert_eq!(received.matches("<rows>").count(), 2);
}

#[test]
fn replies_owed_are_bounded() {
    let replies: Vec<_> = (0..100).flat_map(|_| [copy_accepted(), complete("COPY 0", b'T')]).collect();
    let mut session = session(&replies, 50);
    for _ in 0..100 {
        session.begin_copy("copy x").unwrap();
        session.end_copy().unwrap();
        assert!(session.owed.len() <= REPLIES_OWED_MAX);
    }
    session.settle(0).unwrap();
    assert!(session.socket.replies.is_empty());
}

#[test]
fn a_wrong_count_is_an_error() {
    let mut session = session(&[copy_accepted(), complete("COPY 1", b'T')], 100);
    session.begin_copy("copy x").unwrap();
    session.open_copy = Some(2);
    let error = session.end_copy().and_then(|_| session.settle(0)).unwrap_err();
    assert!(matches!(error, SessionError::RowCount { sent: 2, counted: 1 }), "{error}");
    assert!(error.connection_lives());
}

#[test]
fn an_error_in_the_middle_of_a_copy_is_noticed_before_more_is_sent() {
    for piece in [1, 9, 1000] {
        let error = [refused("ERROR", "53100"), message(b'Z', b"E")].concat();
        let mut session = session(&[copy_accepted(), error, complete("ROLLBACK", b'I')], piece);
        session.begin_copy("copy x").unwrap();
        let received = session.socket.received.len();
        let error = session.send(b"<rows>", 9).unwrap_err();
        assert!(matches!(&error, SessionError::Server(e) if e.sqlstate.as_str() == "53100"), "{error}");
        assert!(error.connection_lives());
        assert_eq!(session.socket.received.len(), received, "nothing is sent after the error");
        assert_eq!(session.open_copy, None);
        session.roll_back().unwrap();
        assert!(session.socket.replies.is_empty());
        assert!(!String::from_utf8_lossy(&session.socket.received).contains("begins this chunk again"));
    }
}

#[test]
fn an_error_of_an_earlier_copy_leaves_the_later_ones_to_be_rolled_back() {
    let failed = [refused("ERROR", "23514"), message(b'Z', b"E")].concat();
    let ignored = [refused("ERROR", "25P02"), message(b'Z', b"E")].concat();
    let mut session =
        session(&[copy_accepted(), failed, ignored.clone(), ignored, complete("ROLLBACK", b'I')], 64);
    let replies = std::mem::take(&mut session.socket.replies);
    session.begin_copy("copy a").unwrap();
    session.end_copy().unwrap();
    session.begin_copy("copy b").unwrap();
    session.end_copy().unwrap();
    session.begin_copy("copy c").unwrap();
    session.socket.replies = replies;
    let error = session.settle(0).unwrap_err();
    assert!(matches!(&error, SessionError::Server(e) if e.sqlstate.as_str() == "23514"), "{error}");
    session.roll_back().unwrap();
    assert!(session.socket.replies.is_empty(), "every reply was read");
    let received = String::from_utf8_lossy(&session.socket.received).into_owned();
    assert!(received.contains("begins this chunk again"), "the open COPY was failed");
}

#[test]
fn the_last_message_before_the_server_closes_is_the_error() {
    let mut session = session(&[refused("FATAL", "57P01")], 10);
    let replies = std::mem::take(&mut session.socket.replies);
    session.begin_copy("copy x").unwrap();
    session.socket.hangs_up_after = session.socket.received.len();
    session.socket.replies = replies;
    // Not readable in time, only after the write failed.
    let error = session.flush_after_hang_up().unwrap_err();
    assert!(matches!(&error, SessionError::Server(e) if e.sqlstate.as_str() == "57P01"), "{error}");
    assert!(!error.connection_lives());
}

impl Session<Script> {
    fn flush_after_hang_up(&mut self) -> Result<(), SessionError> {
        self.out.clear();
        self.out.extend_from_slice(b"<rows>");
        self.flush()
    }
}

#[test]
fn a_lost_connection_is_not_a_server_error() {
    let mut session = session(&[message(b'C', b"BEGIN\0")], 10);
    let error = session.execute("begin").unwrap_err();
    assert!(matches!(&error, SessionError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof), "{error}");
    assert!(!error.connection_lives());
    session.socket.hangs_up_after = 0;
    let error = session.execute("begin").unwrap_err();
    assert!(matches!(&error, SessionError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe), "{error}");
}

#[test]
fn messages_that_have_no_place_end_the_session() {
    let mut session = session(&[message(b'R', &[0, 0, 0, 0])], 10);
    let error = session.execute("select 1").unwrap_err();
    assert!(matches!(error, SessionError::Protocol(ProtocolError::Unexpected { tag: b'R' })));
    assert!(!error.connection_lives());
}
