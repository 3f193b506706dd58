//! Which hosts a new session may try. While a host refuses, or does not answer, one attempt at a time is made there, and the next one a beat later: a hundred
//! probes that each opened a session of their own at every host kept both standbys of a cluster from promoting anybody (measured: 645 connections in the
//! listen queue of each, all given up by then, so that no session began for as long as the probes went on).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use connect::ConnSpec;

use crate::client::Client;

/// Between two attempts at a host that is shut.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two looks at an attempt of another probe: several in a pause, so that its end is not missed.
const LOOK: Duration = Duration::from_millis(4);

/// A host.
#[derive(Debug)]
struct Door {
    /// Whether the last attempt ended with a session: then there may be any number at once.
    is_open: AtomicBool,
    /// When the next attempt may begin; locked during one.
    next: Mutex<Instant>,
}

/// The hosts of a connection string.
#[derive(Debug)]
pub(super) struct Doors {
    spec: ConnSpec,
    hosts: Vec<Door>,
    /// The host that answered last: all attempts begin with it.
    first: AtomicUsize,
}

/// What a probe that comes to a door finds.
enum Found<'a> {
    /// It may try.
    Free(Attempt<'a>),
    /// Another probe tries: what becomes of that holds for this one too.
    Awaited,
    /// An attempt has just failed, and this one would have as well.
    Refused,
}

/// An attempt at a host.
struct Attempt<'a> {
    door: &'a Door,
    /// Of a host that is shut.
    alone: Option<MutexGuard<'a, Instant>>,
}

impl Door {
    fn enter(&self) -> Found<'_> {
        if self.is_open.load(Ordering::Acquire) {
            return Found::Free(Attempt { door: self, alone: None });
        }
        let next = match self.next.try_lock() {
            Ok(next) => next,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Found::Awaited,
        };
        match Instant::now() >= *next {
            true => Found::Free(Attempt { door: self, alone: Some(next) }),
            false => Found::Refused,
        }
    }
}

impl Attempt<'_> {
    fn ends(mut self, is_session: bool) {
        self.door.is_open.store(is_session, Ordering::Release);
        if let Some(next) = self.alone.as_mut() {
            **next = Instant::now() + PAUSE;
        }
    }
}

impl Doors {
    /// The first host is open: it is nearly always the one that answers.
    pub(super) fn of(spec: &ConnSpec) -> Doors {
        let now = Instant::now();
        let door = |host| Door { is_open: AtomicBool::new(host == 0), next: Mutex::new(now) };
        Doors {
            spec: spec.clone(),
            hosts: (0..spec.hosts.len().max(1)).map(door).collect(),
            first: AtomicUsize::new(0),
        }
    }

    /// A session at the first host that gives one, and the host; each is tried once, by this probe or by another one at the same time: a probe that would
    /// have been refused counts as that, instead of as one with a slow answer. `None` if none does until then, and when the measurement has ended: a server
    /// that is started again after it shows nothing of the time before.
    pub(super) fn connect(
        &self,
        until: Instant,
        patience: Duration,
        goes_on: impl Fn() -> bool,
    ) -> Option<(Client, usize)> {
        self.pass(
            || Instant::now() < until && goes_on(),
            |host| match self.spec.hosts.len() {
                0 | 1 => Client::connect(&self.spec, patience).ok(),
                _ => Client::connect(&self.spec.clone().with_only_host(host), patience).ok(),
            },
        )
    }

    /// The same with any kind of session.
    fn pass<T>(&self, goes_on: impl Fn() -> bool, open: impl Fn(usize) -> Option<T>) -> Option<(T, usize)> {
        let count = self.hosts.len();
        let mut left: Vec<usize> = (0..count).collect();
        left.rotate_left(self.first.load(Ordering::Relaxed) % count);
        while !left.is_empty() {
            let mut free = None;
            left.retain(|host| {
                // The first one that is free; those behind it stay for later.
                free.is_some()
                    || match self.hosts[*host].enter() {
                        Found::Free(attempt) => {
                            free = Some((*host, attempt));
                            false
                        }
                        Found::Awaited => true,
                        Found::Refused => false,
                    }
            });
            match free {
                Some((host, attempt)) => {
                    let session = open(host);
                    attempt.ends(session.is_some());
                    if let Some(session) = session {
                        self.first.store(host, Ordering::Relaxed);
                        return Some((session, host));
                    }
                }
                None if left.is_empty() => return None,
                None => std::thread::sleep(LOOK),
            }
            if !goes_on() {
                return None;
            }
        }
        None
    }

    /// A session of this host was lost, or got no answer.
    pub(super) fn shut(&self, host: usize) {
        self.hosts[host].is_open.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(hosts: usize) -> Doors {
        let mut spec = ConnSpec::new("localhost", 5432, "role", "database");
        spec.hosts = vec![spec.hosts[0].clone(); hosts];
        Doors::of(&spec)
    }

    #[test]
    fn a_host_that_refuses_gets_one_attempt_at_a_time() {
        let doors = doors(3);
        let tried = [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)];
        let at_once = [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)];
        let most = AtomicUsize::new(0);
        let begin = Instant::now();
        let until = begin + Duration::from_millis(500);
        doors.shut(0);
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    while Instant::now() < until {
                        let refused = doors.pass(
                            || Instant::now() < until,
                            |host| {
                                tried[host].fetch_add(1, Ordering::Relaxed);
                                most.fetch_max(
                                    at_once[host].fetch_add(1, Ordering::AcqRel) + 1,
                                    Ordering::AcqRel,
                                );
                                std::thread::sleep(Duration::from_millis(2));
                                at_once[host].fetch_sub(1, Ordering::AcqRel);
                                None::<()>
                            },
                        );
                        assert!(refused.is_none());
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::Acquire), 1);
        let attempts_max = (begin.elapsed().as_millis() / PAUSE.as_millis()) as usize + 1;
        for tried in tried {
            let tried = tried.into_inner();
            assert!((1..=attempts_max).contains(&tried), "{tried} of {attempts_max}");
        }
    }

    #[test]
    fn a_host_that_hangs_is_no_way_past_the_one_that_answers() {
        let doors = doors(2);
        doors.shut(0);
        let end = Instant::now() + Duration::from_secs(5);
        let goes_on = || Instant::now() < end;
        let hanging = doors.hosts[0].enter();
        assert!(matches!(hanging, Found::Free(_)) && matches!(doors.hosts[0].enter(), Found::Awaited));
        assert_eq!(doors.pass(goes_on, |host| (host == 1).then_some("b")), Some(("b", 1)));
        // It answered: any number at once, and all begin with it.
        let (one, two) = (doors.hosts[1].enter(), doors.hosts[1].enter());
        assert!(matches!((one, two), (Found::Free(_), Found::Free(_))));
        assert_eq!(doors.pass(goes_on, Some), Some((1, 1)));
        // Who waits for another's attempt when the measurement ends gets none.
        doors.shut(1);
        let _tried = doors.hosts[1].enter();
        assert_eq!(doors.pass(|| false, Some), None);
    }

    /// A probe that comes while a server is down is not counted as answered late: it is refused as the one that tried was.
    #[test]
    fn who_comes_while_another_is_refused_is_refused_as_well() {
        let doors = doors(1);
        doors.shut(0);
        let end = Instant::now() + Duration::from_secs(5);
        let goes_on = || Instant::now() < end;
        let tried = AtomicUsize::new(0);
        let refuse = |_| {
            tried.fetch_add(1, Ordering::AcqRel);
            std::thread::sleep(LOOK * 3);
            None::<()>
        };
        std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(|| doors.pass(goes_on, refuse)));
            assert!(all.into_iter().all(|one| one.join().is_ok_and(|session| session.is_none())));
        });
        let tried = tried.into_inner();
        assert!((1..8).contains(&tried), "{tried}");
        // It may be tried again a beat later, and one success lets everybody in.
        std::thread::sleep(PAUSE);
        let opens = |host| {
            std::thread::sleep(LOOK * 3);
            Some(host)
        };
        std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(|| doors.pass(goes_on, opens)));
            assert!(all.into_iter().all(|one| one.join().is_ok_and(|session| session.is_some())));
        });
    }
}
