//! Our scripts against the real pgbench: the same expressions give the same values and the same errors, and the same script sends
//! the same statements.
//!
//! Needs an installed PostgreSQL with pgbench; where there is none the tests say so and pass.

mod corpus;

use std::path::{Path, PathBuf};
use std::process::Command;

use corpus::{FAILURES, REFUSED, SCRIPTS, SIMPLE_SCRIPTS, VALUES};
use lab::throwaway::{SUPERUSER, Throwaway, installations};
use run::random::Random;
use run::script::{
    Cursor, Failure, Mix, Options, Predefined, QueryMode, ScriptError, Source, State, Step, Value,
};

const PREDEFINED: Predefined = Predefined { client_id: 0, scale: 10, random_seed: 42, default_seed: 5432 };

struct Pgbench {
    server: Throwaway,
    program: PathBuf,
}

impl Pgbench {
    /// A server with its pgbench, or `None` where no installation has one.
    fn start() -> Option<Pgbench> {
        let found = installations().into_iter().find(|installation| installation.program("pgbench").exists());
        let Some(installation) = found else {
            testing::skip(&testing::Lack::new("pgbench", "no PostgreSQL installation has one"));
            return None;
        };
        let server =
            Throwaway::start(&installation, &[("max_connections", "10")]).expect("the server starts");
        Some(Pgbench { program: installation.program("pgbench"), server })
    }

    /// Runs one transaction of a script; answers whether it went well, and stderr.
    fn run(&self, mode: &str, script: &str) -> (bool, String) {
        let file = TemporaryFile::with(script);
        let output = Command::new(&self.program)
            .arg("-h")
            .arg(self.server.socket_dir())
            .args(["-p", &self.server.port().to_string(), "-U", SUPERUSER, "-n", "-t", "1", "-d", "-M", mode])
            .args(["-D", "scale=10", "-D", "default_seed=5432"])
            .args(DEFINES.iter().flat_map(|(name, value)| ["-D".to_owned(), format!("{name}={value}")]))
            .arg("-f")
            .arg(&file.0)
            .arg("postgres")
            .env("LC_ALL", "C")
            .output()
            .expect("pgbench starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

const DEFINES: [(&str, &str); 5] = [
    ("given", "41"),
    ("text_true", "yes"),
    ("text_half", "0.5"),
    ("text_null", "NULL"),
    ("text_word", "word"),
];

struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn with(text: &str) -> TemporaryFile {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-dialect-{}-{number}.sql", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(Path::new(&self.0));
    }
}

fn compile(mode: QueryMode, text: &str) -> Result<Mix, ScriptError> {
    let defines = DEFINES.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let source = Source { name: "t.sql".to_owned(), text: text.to_owned(), weight: 1 };
    Mix::compile(&[source], &Options { mode, defines })
}

/// What `debug()` prints of a value.
fn shown(value: Value) -> String {
    if value == Value::Null {
        return "null".to_owned();
    }
    let mut text = Vec::new();
    value.write_text(&mut text);
    format!("{} {}", value.type_name(), String::from_utf8(text).expect("numbers are ASCII"))
}

/// Evaluates an expression as the last `debug()` of a `\set`.
fn ours(expression: &str) -> Result<String, String> {
    let mix = compile(QueryMode::Simple, &format!("\\set v debug({expression})\n"))
        .map_err(|error| error.problem().to_string())?;
    let script = &mix.scripts()[0];
    let mut state = mix.state(&PREDEFINED).expect("short defines");
    let mut last = None;
    let mut random = Random::for_transaction(1, 0, 0);
    script
        .step(&mut Cursor::default(), &mut state, &mut random, &mut |_, value| last = Some(value))
        .map_err(|failure| script.explain(&failure, mix.names()).problem().to_string())?;
    Ok(shown(last.expect("debug() was called")))
}

#[test]
fn expressions_have_pgbenchs_values() {
    let Some(pgbench) = Pgbench::start() else { return };
    assert!(VALUES.len() >= 150, "only {} expressions are compared", VALUES.len());
    let script: String = VALUES.iter().map(|expression| format!("\\set v debug({expression})\n")).collect();
    let (success, stderr) = pgbench.run("simple", &(script + "SELECT 1;\n"));
    assert!(success, "pgbench refuses a value:\n{stderr}");
    // debug(script=0,command=N): value; a nested debug() prints twice, the last one counts.
    let mut theirs = vec![String::new(); VALUES.len()];
    for line in stderr.lines() {
        let Some(rest) = line.strip_prefix("debug(script=0,command=") else { continue };
        let (command, value) = rest.split_once("): ").expect("the form of a debug line");
        theirs[command.parse::<usize>().expect("a number") - 1] = value.to_owned();
    }
    let mut differences = Vec::new();
    for (expression, theirs) in VALUES.iter().zip(&theirs) {
        let ours = ours(expression);
        if ours.as_ref() != Ok(theirs) {
            differences.push(format!("{expression}: ours {ours:?}, pgbench {theirs}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn expressions_fail_where_pgbench_fails() {
    let Some(pgbench) = Pgbench::start() else { return };
    let mut differences = Vec::new();
    for (expression, message) in FAILURES {
        let (success, stderr) = pgbench.run("simple", &format!("\\set v {expression}\nSELECT 1;\n"));
        if success || !stderr.contains(message) {
            differences.push(format!("{expression}: pgbench says {stderr}"));
        }
        match ours(expression) {
            Err(ours) if ours == *message || message.starts_with("malformed") => {}
            other => differences.push(format!("{expression}: ours {other:?}, expected {message}")),
        }
    }
    for expression in REFUSED {
        let (success, _) = pgbench.run("simple", &format!("\\set v {expression}\nSELECT 1;\n"));
        let ours = compile(QueryMode::Simple, &format!("\\set v {expression}\nSELECT 1;\n"));
        if success || ours.is_ok() {
            differences.push(format!("{expression}: accepted by pgbench {success}, by us {}", ours.is_ok()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The statements that pgbench's debug output says it sent.
fn sent_by_pgbench(stderr: &str) -> Vec<String> {
    let mut sent: Vec<String> = Vec::new();
    let mut in_statement = false;
    for line in stderr.split('\n') {
        if let Some(text) = line.strip_prefix("pgbench: client 0 sending ") {
            sent.push(text.to_owned());
            in_statement = true;
        } else if line.starts_with("pgbench: ") || line.starts_with("debug(") {
            in_statement = false;
        } else if in_statement {
            let statement = sent.last_mut().expect("a statement has begun");
            statement.push('\n');
            statement.push_str(line);
        }
    }
    sent.into_iter().map(|statement| statement.trim_end().to_owned()).collect()
}

/// The statements that we send, with the server's answers to captures.
fn sent_by_us(mode: QueryMode, text: &str, server: &Throwaway) -> Vec<String> {
    let mix = compile(mode, text).unwrap_or_else(|error| panic!("{error}"));
    let script = &mix.scripts()[0];
    let mut state = mix.state(&PREDEFINED).expect("short defines");
    let mut random = Random::for_transaction(1, 0, 0);
    let mut cursor = Cursor::default();
    let mut sent = Vec::new();
    loop {
        let step = script.step(&mut cursor, &mut state, &mut random, &mut |_, _| {});
        match step.unwrap_or_else(|failure| panic!("{}", script.explain(&failure, mix.names()))) {
            Step::End => return sent,
            Step::Sql { statement, command } => {
                let mut simple = Vec::new();
                if let Err(error) = statement.append_simple(&state, &mut simple) {
                    panic!("{}", script.explain(&Failure::new(command, error), mix.names()));
                }
                let simple = String::from_utf8(simple).expect("the script is UTF-8");
                if let Some(capture) = statement.capture() {
                    answer(server, &simple, capture, &mix, &mut state);
                }
                sent.push(if mode == QueryMode::Simple { simple } else { statement.prepared().to_owned() });
            }
            _ => {}
        }
    }
}

/// Sets what a capture sets, one statement of a joined pair after the other.
fn answer(server: &Throwaway, sql: &str, capture: &run::script::Capture, mix: &Mix, state: &mut State) {
    for part in sql.split(';').filter(|part| !part.trim().is_empty()) {
        // One row of (name, value) pairs, whatever the columns are.
        let query =
            format!("SELECT key, value FROM ({part}) AS answer, LATERAL json_each_text(to_json(answer))");
        for row in server.execute(&query).expect("the statement is valid") {
            let (Some(name), value) = (row[0].as_deref().expect("a name").into(), row[1].as_deref()) else {
                return;
            };
            let mut targets = Vec::new();
            let name: &str = name;
            capture.targets(mix.names(), std::iter::once(name), &mut targets).expect("a variable name");
            if let (Some(slot), Some(value)) = (targets[0], value) {
                state.set_text(slot, value.as_bytes()).expect("a short text");
            }
        }
    }
}

#[test]
fn scripts_send_the_statements_that_pgbench_sends() {
    let Some(pgbench) = Pgbench::start() else { return };
    let mut differences = Vec::new();
    let everywhere =
        SCRIPTS.iter().flat_map(|script| [(*script, QueryMode::Simple), (*script, QueryMode::Extended)]);
    let simple = SIMPLE_SCRIPTS.iter().map(|script| (*script, QueryMode::Simple));
    for (script, mode) in everywhere.chain(simple) {
        let flag = if mode == QueryMode::Simple { "simple" } else { "extended" };
        let (success, stderr) = pgbench.run(flag, script);
        assert!(success, "pgbench refuses in {flag} mode:\n{script}\n{stderr}");
        let theirs = sent_by_pgbench(&stderr);
        let ours = sent_by_us(mode, script, &pgbench.server);
        if ours != theirs {
            differences.push(format!("{flag} mode:\n{script}\nours    {ours:?}\npgbench {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn built_in_scripts_are_pgbenchs() {
    let Some(pgbench) = Pgbench::start() else { return };
    for builtin in run::script::BUILTINS {
        let output = Command::new(&pgbench.program)
            .arg(format!("--show-script={}", builtin.name))
            .output()
            .expect("pgbench starts");
        let theirs = String::from_utf8_lossy(&output.stderr).into_owned();
        let commands: Vec<&str> =
            theirs.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).collect();
        assert_eq!(builtin.text.lines().collect::<Vec<_>>(), commands, "{}", builtin.name);
    }
}
