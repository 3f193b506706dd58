//! What every drill stands on: a throwaway server, sessions that repeat a statement, a watch over it, and the judgement of `explain` while the
//! directory is still being written.

use crate::support::{Ended, Folder, pgfathom};
use crate::sys;
use lab::throwaway::{Installation, Options, Throwaway, installations};
use postgres::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testing::Lack;

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
        Ground::with(settings, Options::default())
    }

    /// The same with more than settings: a data directory or a WAL somewhere else.
    pub(crate) fn with(settings: &[(&str, &str)], options: Options) -> Ground {
        let installation =
            installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
        Ground::on(&installation, settings, options)
    }

    /// The same with a release before that one, for what newer ones cannot suffer from any more; `None` if there is none on this machine.
    pub(crate) fn before(major: u32, settings: &[(&str, &str)]) -> Option<Ground> {
        let older = installations().into_iter().find(|installation| installation.version.major < major)?;
        Some(Ground::on(&older, settings, Options::default()))
    }

    fn on(installation: &Installation, settings: &[(&str, &str)], mut options: Options) -> Ground {
        let settings = settings.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
        options.settings.extend(settings);
        let cluster = options.start(installation).expect("the throwaway server starts");
        Ground { folder: Folder::new(), cluster }
    }

    /// A tablespace in a folder of its own on the file system that is mounted there.
    pub(crate) fn tablespace(&self, name: &str, mount: &Path) {
        let folder = mount.join(name);
        fs::create_dir(&folder).expect("the mount is writable");
        let owner = fs::metadata(self.cluster.data_dir()).expect("the server has one").uid();
        chown(&folder, Some(owner), None).expect("we are root");
        self.sql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", folder.display()));
    }

    /// The processes of the server.
    pub(crate) fn pids(&self) -> Vec<u32> {
        lab::local::servers_in(&self.cluster.data_dir())
    }

    pub(crate) fn session(&self) -> Client {
        session(&self.cluster)
    }

    pub(crate) fn sql(&self, text: &str) {
        self.session().batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }

    /// Waits until a query says yes.
    pub(crate) fn wait_for(&self, query: &str) {
        let begun = Instant::now();
        while self.cluster.value(query).expect("a query").as_deref() != Some("t") {
            assert!(begun.elapsed() < PATIENCE, "{query} did not become true");
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn watch(&self, name: &str) -> Watching<'_> {
        self.watch_every("500ms", name)
    }

    /// Looks as often as that: rules that compare the beginning of a record with its end need a number of looks, not of seconds.
    pub(crate) fn watch_every(&self, interval: &str, name: &str) -> Watching<'_> {
        self.begin(&format!("watch -q --interval {interval}"), name)
    }

    /// A verb on this server that leaves a directory of this name.
    pub(crate) fn begin(&self, words: &str, name: &str) -> Watching<'_> {
        let socket = self.cluster.socket_dir().display();
        let target = format!("-U postgres -d postgres -p {} -h {socket}", self.cluster.port());
        Watching::begin(&self.folder, &format!("{words} {target}"), name)
    }

    /// A session that repeats a statement until it is stopped; errors are part of some drills.
    pub(crate) fn repeat(&self, text: &str, pause: Duration) -> Worker {
        repeat(&self.cluster, text, pause)
    }
}

/// A session at a server.
pub(crate) fn session(server: &Throwaway) -> Client {
    Client::connect(&connection(server)).expect("connects")
}

fn connection(server: &Throwaway) -> String {
    let socket = server.socket_dir().display();
    format!("host={socket} port={} user=postgres dbname=postgres", server.port())
}

/// The same as [`Ground::repeat`] at any server.
pub(crate) fn repeat(server: &Throwaway, text: &str, pause: Duration) -> Worker {
    let (mut session, statement) = (session(server), text.to_string());
    let pid: i32 = session.query_one("select pg_backend_pid()", &[]).expect("answers").get(0);
    let cancelled = (connection(server), pid);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (seen, counted) = (Arc::clone(&stop), Arc::clone(&done));
    let thread = thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            if session.batch_execute(&statement).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let _ = session.batch_execute("ROLLBACK");
            thread::sleep(pause);
        }
    });
    Worker { stop, cancelled, thread: Some(thread), text: text.to_string(), done, may_fail: false }
}

pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    /// Where its session is, and which process.
    cancelled: (String, i32),
    thread: Option<JoinHandle<()>>,
    text: String,
    /// How often the statement has succeeded.
    done: Arc<AtomicU64>,
    may_fail: bool,
}

impl Worker {
    /// For statements that wait for what does not come. Every other must have succeeded: a server without its work is no control.
    pub(crate) fn in_vain(mut self) -> Worker {
        self.may_fail = true;
        self
    }
}

impl Drop for Worker {
    /// A session that waits for a lock or a standby would wait for ever: it is cancelled until it has noticed.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            let (server, pid) = &self.cancelled;
            let _ = Client::connect(server)
                .and_then(|mut client| client.execute("select pg_cancel_backend($1)", &[pid]));
            thread::sleep(Duration::from_millis(50));
        }
        let _ = thread.join();
        if !thread::panicking() && !self.may_fail {
            let words: String = self.text.chars().take(200).collect();
            assert!(self.done.load(Ordering::Relaxed) > 0, "the work of this drill was never done: {words}");
        }
    }
}

/// A watch, or another verb with the watch beside it, that goes on.
pub(crate) struct Watching<'a> {
    folder: &'a Folder,
    child: Child,
    name: String,
    begun: Instant,
}

impl Watching<'_> {
    pub(crate) fn begin<'a>(folder: &'a Folder, words: &str, name: &str) -> Watching<'a> {
        let mut command = pgfathom(folder.path());
        command.args(words.split_whitespace()).args(["-o", name]);
        // It is killed in the end: what it has not tidied up goes with our folder.
        command.env("TMPDIR", folder.path());
        sys::end_with_us(&mut command);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        Watching { folder, child, name: name.to_string(), begun: Instant::now() }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Ends it as Ctrl-C does, and waits: some things are looked at once more at the end.
    pub(crate) fn end(&mut self) {
        self.signal("-INT");
        let _ = self.child.wait();
    }

    /// Waits until the findings are as they should be, which `holds` states.
    pub(crate) fn until_that(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        loop {
            let findings = self.findings();
            if holds(&findings) {
                return findings;
            }
            assert!(self.begun.elapsed() < PATIENCE, "{what}: {findings:#?}");
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// The findings so far, by rule.
    pub(crate) fn findings(&self) -> BTreeMap<String, Value> {
        findings(self.folder, &self.name)
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
                crate::catalogue::score_drill(&self.name, rules, &explain(self.folder.path(), &self.name));
                return fired;
            }
            assert!(self.begun.elapsed() < PATIENCE, "{silent:?} did not fire; what did: {:?}", fired.keys());
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Waits until the server was looked at a few times, and asserts that these rules looked and found nothing.
    pub(crate) fn is_silent(&self, rules: &[&str]) {
        self.is_silent_for(CALM_LOOKS, rules);
    }

    /// The same for rules that request a certain time: they must have had it.
    pub(crate) fn is_silent_for(&self, looks: usize, rules: &[&str]) {
        self.looked(looks);
        silent(&explain(self.folder.path(), &self.name), rules);
    }

    /// Waits until the server was looked at so often.
    pub(crate) fn looked(&self, times: usize) {
        while self.looks() < times {
            assert!(self.begun.elapsed() < PATIENCE, "the server was not looked at");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// How often any server was looked at so far.
    pub(crate) fn looks(&self) -> usize {
        let text = std::fs::read_to_string(self.dir().join("samples.ndjson")).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"source\":\"server\"")).count()
    }
}

/// What `explain` says of a directory; nothing as long as there is none. An `explain` that fails has not looked, and fails the drill.
pub(crate) fn explain(folder: &Path, name: &str) -> Value {
    if !folder.join(name).join("run.json").exists() {
        return Value::Null;
    }
    let mut command = pgfathom(folder);
    command.args(["explain", "-q", "--format", "json", name]);
    told(name, &command.output().expect("the command starts").into())
}

/// The answer of an `explain` that has ended as it should.
fn told(name: &str, ended: &Ended) -> Value {
    assert_eq!(ended.exit, Some(0), "explain {name}: {}{}", ended.stdout, ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("explain {name}: {error}: {}", ended.stdout));
    for list in ["findings", "checked"] {
        assert!(told[list].is_array(), "explain {name} has no {list}: {}", ended.stdout);
    }
    told
}

/// The findings of a directory by rule.
pub(crate) fn findings(folder: &Folder, name: &str) -> BTreeMap<String, Value> {
    by_rule(&explain(folder.path(), name), "findings")
}

/// What a list of `explain` says of each rule.
pub(crate) fn by_rule(told: &Value, list: &str) -> BTreeMap<String, Value> {
    let entries = told[list].as_array().cloned().unwrap_or_default();
    entries.into_iter().map(|entry| (entry["rule"].as_str().unwrap_or("").to_string(), entry)).collect()
}

/// Asserts that these rules looked and found nothing: `explain` itself must say of each that it is clean.
pub(crate) fn silent(told: &Value, rules: &[&str]) {
    let (findings, checked) = (by_rule(told, "findings"), by_rule(told, "checked"));
    let wrong: Vec<_> = rules.iter().filter_map(|rule| findings.get(*rule)).collect();
    assert!(wrong.is_empty(), "a healthy server: {wrong:#?}");
    for rule in rules {
        match checked.get(*rule) {
            Some(answer) => assert_eq!(answer["said"], "clean", "silent for want of evidence: {answer:#?}"),
            None => panic!("{rule} was not asked: {told:#?}"),
        }
        eprintln!("drill {rule}: silent in the control");
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    let ended = Command::new("kill").args([name, &pid]).status().expect("kill is there");
    assert!(ended.success(), "kill {name} {pid}");
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A drill that this machine cannot make says so, in the table of `make drills`, too.
#[track_caller]
pub(crate) fn not_possible_here(rules: &[&str], lack: &Lack) {
    for rule in rules {
        eprintln!("drill {rule}: not possible here: {lack}");
    }
    testing::skip(lack);
}

/// A rule for which there is no drill at all, in the same table.
pub(crate) fn not_drilled(rule: &str, why: &str) {
    eprintln!("drill {rule}: no drill: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::panic::catch_unwind;

    fn ended(exit: i32, stdout: &str) -> Ended {
        Ended { exit: Some(exit), stdout: stdout.to_string(), stderr: String::new() }
    }

    #[test]
    fn an_explain_that_fails_is_no_silence() {
        let whole = json!({"findings": [], "checked": []}).to_string();
        assert!(told("run", &ended(0, &whole))["findings"].is_array());
        for broken in
            [ended(1, &whole), ended(101, ""), ended(0, ""), ended(0, "{}"), ended(0, "{\"findings\"")]
        {
            assert!(catch_unwind(|| told("run", &broken)).is_err(), "{}", broken.stdout);
        }
    }

    #[test]
    fn a_rule_that_has_not_looked_is_not_silent() {
        let answer = |said: &str| json!({"findings": [], "checked": [{"rule": "WAL-01", "said": said}]});
        silent(&answer("clean"), &["WAL-01"]);
        let fired = json!({"findings": [{"rule": "WAL-01"}], "checked": []});
        let never_asked = json!({"findings": [], "checked": [{"rule": "WAL-02", "said": "clean"}]});
        for wrong in [answer("cannot_tell"), fired, never_asked, Value::Null, json!({})] {
            assert!(catch_unwind(|| silent(&wrong, &["WAL-01"])).is_err(), "{wrong}");
        }
    }
}
