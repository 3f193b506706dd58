//! Values that end what a test has started, however the test ends.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A process that is killed when this value is dropped, unless it has ended before.
#[derive(Debug)]
pub struct Running(Option<Child>);

impl Running {
    pub fn new(child: Child) -> Running {
        Running(Some(child))
    }

    /// Waits for its end and gives what it wrote to its pipes.
    ///
    /// # Errors
    /// When the system cannot wait for it.
    pub fn output(mut self) -> std::io::Result<Output> {
        self.0.take().expect("it is there until it is dropped").wait_with_output()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops threads, at the latest when it is dropped: a scope that is left by a panic joins its threads first.
#[derive(Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn new() -> Stop {
        Stop::default()
    }

    /// What the threads look at.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_failed_test_leaves_no_process_behind() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let failed = std::panic::catch_unwind(|| {
            let _running = Running::new(child);
            panic!("as a failed assertion does");
        });
        assert!(failed.is_err());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was killed, and waited for");
    }

    #[test]
    fn a_failed_test_leaves_no_thread_waiting() {
        let failed = std::panic::catch_unwind(|| {
            // Without the drop of `stop` this scope would never be left.
            std::thread::scope(|scope| {
                let stop = Stop::new();
                let flag = stop.flag();
                scope.spawn(move || {
                    while !flag.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                });
                panic!("as a failed assertion does");
            });
        });
        assert!(failed.is_err());
    }
}
