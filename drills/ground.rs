//! What every drill stands on: a throwaway server, sessions that repeat a statement, a watch over it, and the judgement of `explain` while the
//! directory is still being written.

use crate::support::{Ended, Folder, pgfathom};
use postgres::{CancelToken, Client, NoTls};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use target::throwaway::{Throwaway, installations};

/// What has not shown by then will not show.
const PATIENCE: Duration = Duration::from_secs(120);
/// Looks at a healthy server before it is called silent.
const CALM_LOOKS: usize = 6;

pub(crate) struct Ground {
    pub(crate) folder: Folder,
    pub(crate) cluster: Throwaway,
}

impl Ground {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Ground {
        let installation =
            installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
        let cluster = Throwaway::start(&installation, settings).expect("the throwaway server starts");
        Ground { folder: Folder::new(), cluster }
    }

    pub(crate) fn session(&self) -> Client {
        let socket = self.cluster.socket_dir().display();
        let words = format!("host={socket} port={} user=postgres dbname=postgres", self.cluster.port());
        Client::connect(&words, NoTls).expect("connects")
    }

    pub(crate) fn sql(&self, text: &str) {
        self.session().batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }

    pub(crate) fn watch(&self, name: &str) -> Watching<'_> {
        let mut command = pgfathom(self.folder.path());
        command.args(["watch", "-q", "--interval", "500ms", "-o", name]);
        command.args(["-U", "postgres", "-d", "postgres", "-p", &self.cluster.port().to_string(), "-h"]);
        command.arg(self.cluster.socket_dir());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        Watching { ground: self, child, name: name.to_string(), begun: Instant::now() }
    }

    /// A session that repeats a statement until it is stopped; errors are part of some drills.
    pub(crate) fn repeat(&self, text: &str, pause: Duration) -> Worker {
        let (mut session, text) = (self.session(), text.to_string());
        let token = session.cancel_token();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let _ = session.batch_execute(&text);
                let _ = session.batch_execute("ROLLBACK");
                thread::sleep(pause);
            }
        });
        Worker { stop, token, thread: Some(thread) }
    }
}

pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    token: CancelToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    /// A session that waits for a lock or a standby would wait for ever: it is cancelled until it has noticed.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            let _ = self.token.cancel_query(NoTls);
            thread::sleep(Duration::from_millis(50));
        }
        let _ = thread.join();
    }
}

/// A watch that goes on.
pub(crate) struct Watching<'a> {
    ground: &'a Ground,
    child: Child,
    name: String,
    begun: Instant,
}

impl Watching<'_> {
    pub(crate) fn dir(&self) -> PathBuf {
        self.ground.folder.path().join(&self.name)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let ended = Command::new("kill").args([name, &pid]).status().expect("kill is there");
        assert!(ended.success(), "kill {name} {pid}");
    }

    /// The findings so far, by rule.
    pub(crate) fn findings(&self) -> BTreeMap<String, Value> {
        let mut command = pgfathom(self.ground.folder.path());
        command.args(["explain", "-q", "--format", "json", &self.name]);
        let ended: Ended = command.output().expect("the command starts").into();
        // The first look may come before the directory is there.
        let Ok(told) = serde_json::from_str::<Value>(&ended.stdout) else { return BTreeMap::new() };
        let findings = told["findings"].as_array().cloned().unwrap_or_default();
        findings
            .into_iter()
            .map(|finding| (finding["rule"].as_str().unwrap_or("").to_string(), finding))
            .collect()
    }

    /// Waits until all of these rules have fired, and tells how long each took.
    pub(crate) fn until(&self, rules: &[&str]) -> BTreeMap<String, Value> {
        let mut fired: BTreeMap<String, Value> = BTreeMap::new();
        loop {
            for (rule, finding) in self.findings() {
                if rules.contains(&rule.as_str()) && !fired.contains_key(&rule) {
                    eprintln!(
                        "drill {rule}: fired after {:.1} s: {}",
                        self.begun.elapsed().as_secs_f64(),
                        finding["claim"]
                    );
                }
                fired.insert(rule, finding);
            }
            let silent: Vec<&&str> = rules.iter().filter(|rule| !fired.contains_key(**rule)).collect();
            if silent.is_empty() {
                return fired;
            }
            assert!(self.begun.elapsed() < PATIENCE, "{silent:?} did not fire; what did: {:?}", fired.keys());
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Waits until the server was looked at a few times, and asserts that these rules looked and found nothing.
    pub(crate) fn is_silent(&self, rules: &[&str]) {
        self.looked(CALM_LOOKS);
        let findings = self.findings();
        let wrong: Vec<_> = rules.iter().filter_map(|rule| findings.get(*rule)).collect();
        assert!(wrong.is_empty(), "a healthy server: {wrong:#?}");
        for rule in rules {
            eprintln!("drill {rule}: silent in the control");
        }
    }

    /// Waits until the server was looked at so often.
    pub(crate) fn looked(&self, times: usize) {
        let looks = || {
            let text = std::fs::read_to_string(self.dir().join("samples.ndjson")).unwrap_or_default();
            text.lines().filter(|line| line.contains("\"source\":\"server\"")).count()
        };
        while looks() < times {
            assert!(self.begun.elapsed() < PATIENCE, "the server was not looked at");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A drill that this machine cannot make says so, in the table of `make drills`, too.
pub(crate) fn not_possible_here(rule: &str, why: &str) {
    eprintln!("drill {rule}: not possible here: {why}");
}
