//! The ring against sockets whose other end the test holds. A kernel without io_uring is reported, and then there is nothing to test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::NANOS_PER_SECOND;
use crate::engine::link::Stream;

/// Long enough for any machine; nothing here waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

fn reactor(sessions: usize) -> Option<UringReactor> {
    let has_uring = testing::needs::io_uring();
    assert_eq!(UringReactor::probe().is_ok(), has_uring.is_ok(), "{has_uring:?}");
    if let Err(lack) = has_uring {
        testing::skip(&lack);
        return None;
    }
    Some(UringReactor::new(EpollReactor::new().unwrap(), sessions).unwrap())
}

/// A link in the ring's hands, and the server's end of it.
fn adopt(reactor: &mut UringReactor, index: usize) -> (Link, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut link = Link::new(Stream::Unix(ours), None, &[]);
    reactor.adopt(index, &mut link).unwrap();
    (link, theirs)
}

/// ReadyForQuery, the shortest whole reply.
const READY: &[u8] = &[b'Z', 0, 0, 0, 5, b'I'];

/// One wait of at most a second.
fn wait(reactor: &mut UringReactor) -> Vec<Ready> {
    let mut ready = Vec::new();
    let now = reactor.now();
    reactor.wait(now, now + NANOS_PER_SECOND, &mut ready).unwrap();
    ready
}

/// Waits until `done` is true for a session that was found ready.
fn until(reactor: &mut UringReactor, mut done: impl FnMut(&mut UringReactor, Ready) -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for ready in wait(reactor) {
            if done(reactor, ready) {
                return;
            }
        }
    }
    panic!("nothing came in {PATIENCE:?}");
}

#[test]
fn a_round_trip_goes_through_the_ring() {
    let Some(mut reactor) = reactor(2) else { return };
    let (mut link, mut server) = adopt(&mut reactor, 1);
    for round in 0..1_000u32 {
        link.request().extend_from_slice(&round.to_be_bytes());
        reactor.send(1, &mut link).unwrap();
        assert!(!link.has_output());
        reactor.wait(0, 0, &mut Vec::new()).unwrap();
        let mut request = [0; 4];
        server.read_exact(&mut request).unwrap();
        assert_eq!(u32::from_be_bytes(request), round);
        server.write_all(READY).unwrap();
        until(&mut reactor, |reactor, ready| {
            assert_eq!(ready, Ready { index: 1, is_closed: false });
            reactor.receive(1, &mut link, false).unwrap();
            link.reply().unwrap().is_some()
        });
    }
    assert_eq!((link.traffic.sends, link.traffic.sent_bytes), (1_000, 4_000));
    assert_eq!(link.traffic.received_bytes, 1_000 * READY.len() as u64);
}

#[test]
fn what_the_socket_does_not_take_goes_out_later_and_in_order() {
    let Some(mut reactor) = reactor(1) else { return };
    // Up to sizes that one queue entry cannot have, which are sent without the ring.
    for bytes in [40_000usize, 60_000, 300_000, 5_000_000] {
        let (mut link, mut server) = adopt(&mut reactor, 0);
        let numbers: Vec<u8> = (0..bytes as u32 / 4 * 16).flat_map(u32::to_be_bytes).collect();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut piece = [0; 7_001];
            std::thread::sleep(Duration::from_millis(20));
            loop {
                match server.read(&mut piece).unwrap() {
                    0 => return got,
                    count => got.extend_from_slice(&piece[..count]),
                }
            }
        });
        // As a worker does: sends what was written, and when it does not all go, waits for room.
        let mut is_blocked = false;
        let mut room = |reactor: &mut UringReactor, link: &Link| {
            if link.has_output() != is_blocked {
                is_blocked = link.has_output();
                reactor.watch_room(link.fd().unwrap(), 0, is_blocked).unwrap();
            }
        };
        for part in numbers.chunks(bytes) {
            link.request().extend_from_slice(part);
            reactor.send(0, &mut link).unwrap();
            room(&mut reactor, &link);
        }
        let begun = Instant::now();
        let mut quiet_waits = 0;
        // A quiet wait of a whole second with nothing left means that all is out.
        while quiet_waits == 0 || link.has_output() {
            assert!(begun.elapsed() < PATIENCE);
            let ready = wait(&mut reactor);
            quiet_waits = if ready.is_empty() { quiet_waits + 1 } else { 0 };
            for _ in ready {
                reactor.receive(0, &mut link, false).unwrap();
                reactor.send(0, &mut link).unwrap();
                room(&mut reactor, &link);
            }
        }
        drop(link);
        assert!(reader.join().unwrap() == numbers, "{bytes} bytes a request");
    }
}

#[test]
fn the_last_message_and_the_end_are_both_received() {
    let Some(mut reactor) = reactor(1) else { return };
    let fatal = b"E\0\0\0\x20SFATAL\0VFATAL\0C57P01\0Mbye\0\0";
    let mut message = fatal.to_vec();
    message[4] = (message.len() - 1) as u8;
    for _ in 0..50 {
        let (mut link, mut server) = adopt(&mut reactor, 0);
        server.write_all(&message).unwrap();
        drop(server);
        let mut end = None;
        until(&mut reactor, |reactor, ready| {
            end = reactor.receive(0, &mut link, ready.is_closed).err();
            end.is_some()
        });
        assert!(matches!(end, Some(LinkError::Fatal(ref error)) if error.message == "bye"), "{end:?}");
    }
}

#[test]
fn a_send_to_a_peer_that_is_gone_ends_the_link() {
    let Some(mut reactor) = reactor(1) else { return };
    let (mut link, server) = adopt(&mut reactor, 0);
    drop(server);
    link.request().extend_from_slice(b"hello");
    reactor.send(0, &mut link).unwrap();
    until(&mut reactor, |reactor, ready| reactor.receive(0, &mut link, ready.is_closed).is_err());
}

#[test]
fn a_new_connection_receives_nothing_of_the_old_one() {
    let Some(mut reactor) = reactor(1) else { return };
    let (mut link, mut server) = adopt(&mut reactor, 0);
    for round in 0..200u8 {
        // The old one is left with a reply under way, an unread one, or a request that was never handed over.
        match round % 3 {
            0 => server.write_all(b"old").unwrap(),
            1 => {
                server.write_all(b"old").unwrap();
                drop(wait(&mut reactor));
            }
            _ => {
                link.request().extend_from_slice(b"old");
                reactor.send(0, &mut link).unwrap();
            }
        }
        drop(link);
        let (new_link, mut new_server) = adopt(&mut reactor, 0);
        link = new_link;
        // The peer of the old one sees its end.
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).unwrap();
        new_server.write_all(&[&[b'Z', 0, 0, 0, 5, round][..]].concat()).unwrap();
        until(&mut reactor, |reactor, ready| {
            reactor.receive(0, &mut link, ready.is_closed).unwrap();
            link.traffic.received_bytes > 0
        });
        assert_eq!(link.traffic.received_bytes, READY.len() as u64, "round {round}");
        server = new_server;
    }
}

#[test]
fn more_replies_than_buffers_all_arrive() {
    const SESSIONS: usize = 300;
    const BYTES: usize = 50_000;
    let Some(mut reactor) = reactor(SESSIONS) else { return };
    let mut links: Vec<(Link, UnixStream)> = (0..SESSIONS).map(|index| adopt(&mut reactor, index)).collect();
    for (_, server) in &mut links {
        server.write_all(&[7; BYTES]).unwrap();
    }
    let begun = Instant::now();
    while links.iter().any(|(link, _)| link.traffic.received_bytes < BYTES as u64) {
        assert!(begun.elapsed() < PATIENCE);
        for ready in wait(&mut reactor) {
            reactor.receive(ready.index, &mut links[ready.index].0, ready.is_closed).unwrap();
        }
    }
    assert!(links.iter().all(|(link, _)| link.traffic.received_bytes == BYTES as u64));
}

#[test]
fn sessions_that_are_gone_keep_no_buffers() {
    let Some(mut reactor) = reactor(1) else { return };
    for _ in 0..1_000 {
        let (link, mut server) = adopt(&mut reactor, 0);
        server.write_all(b"too late").unwrap();
        drop(wait(&mut reactor));
        drop(link);
        reactor.discard(0);
    }
    let (mut link, mut server) = adopt(&mut reactor, 0);
    server.write_all(READY).unwrap();
    until(&mut reactor, |reactor, ready| {
        reactor.receive(0, &mut link, ready.is_closed).unwrap();
        link.reply().unwrap().is_some()
    });
}

#[test]
fn timers_and_the_waker_end_a_wait() {
    let Some(mut reactor) = reactor(1) else { return };
    let mut ready = Vec::new();
    for _ in 0..20 {
        let deadline = reactor.now() + 300_000;
        while reactor.now() < deadline {
            let now = reactor.now();
            reactor.wait(now, deadline, &mut ready).unwrap();
        }
    }
    assert!(ready.is_empty());
    let waker = reactor.waker();
    let begun = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        waker.wake()
    });
    let now = reactor.now();
    reactor.wait(now, now + 100 * NANOS_PER_SECOND, &mut ready).unwrap();
    thread.join().unwrap().unwrap();
    assert!(begun.elapsed() < PATIENCE);
}
