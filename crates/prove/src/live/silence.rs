//! What takes long is announced: work without a word for half a minute looks like a program that hangs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::fault::Site;

/// After this time in silence a wait is announced.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(3);
/// And after each further time like this it is announced again.
const SILENCE_AFTER: Duration = Duration::from_secs(10);

/// Does `work`, and has `say` report what it is and how long it takes, as long as it has not ended.
pub fn announced<T>(doing: &str, say: impl Fn(String) + Send, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let (end, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut silence = SILENCE_MAX;
            while ended.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
                say(format!("{doing}, for {:.0} s by now", begin.elapsed().as_secs_f64()));
                silence = SILENCE_AFTER;
            }
        });
        // Work that panics ends it, too.
        let _end = end;
        work()
    })
}

/// The same on a site, whose nodes without an answer are named.
pub(super) fn announced_on<T>(site: &Site, doing: &str, work: impl FnOnce() -> T) -> T {
    let say = |words: String| {
        let absent: Vec<String> = site.absent_nodes().into_iter().map(|(name, _)| name).collect();
        site.announce(match absent.as_slice() {
            [] => words,
            names => format!("{words}; without an answer: {}", names.join(", ")),
        });
    };
    announced(doing, say, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_what_takes_long_is_announced() {
        let reported = Mutex::new(Vec::new());
        let say = |words: String| reported.lock().unwrap().push(words);
        assert_eq!(announced("working", say, || 7), 7);
        assert!(reported.lock().unwrap().is_empty());
        announced("working", say, || {
            let begin = Instant::now();
            while reported.lock().unwrap().is_empty() {
                assert!(begin.elapsed() < SILENCE_MAX * 10, "nothing was announced");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let reported = reported.into_inner().unwrap();
        assert!(
            reported[0].starts_with("working, for ") && reported[0].ends_with(" s by now"),
            "{reported:?}"
        );
    }
}
