//! Every mistake a user is known to make, with the answer it gets: exit code, message and hint.
//!
//! A row is (what is typed, exit code, the error line, words of the hint). `{dir}` in a message stands for the folder of the row.
//! The shape of every answer is checked as well: `error: ...`, causes indented, a blank line, `hint: ...`, nothing on stdout.

mod support;

use support::{Ended, Folder, pgfathom, run};

/// One mistake.
struct Row {
    typed: &'static str,
    exit: i32,
    error: &'static str,
    hint: &'static str,
}

const fn usage(typed: &'static str, error: &'static str, hint: &'static str) -> Row {
    Row { typed, exit: 1, error, hint }
}

/// Splits as a shell would, single quotes included: rows look like what is typed.
fn words(typed: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in typed.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            other => word.push(other),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

/// What is wrong with an answer, if anything: it must have the shape of every answer, and these words.
fn problem(row: &Row, ended: &Ended, folder: &str) -> Option<String> {
    let mut lines = ended.stderr.lines();
    let error = lines.next().unwrap_or_default();
    let expected = format!("error: {}", row.error.replace("{dir}", folder));
    let said = match expected.strip_suffix("...") {
        Some(start) => error.starts_with(start),
        None => error == expected,
    };
    let mut rest: Vec<&str> = lines.collect();
    let hint = rest.pop().unwrap_or_default();
    let blank = rest.pop();
    let what = if ended.exit != Some(row.exit) {
        format!("the exit code is {:?}, not {}", ended.exit, row.exit)
    } else if !ended.stdout.is_empty() {
        "mistakes are talk, not data".to_string()
    } else if !said {
        format!("expected {expected}")
    } else if !hint.starts_with("hint: ") || !hint.contains(&row.hint.replace("{dir}", folder)) {
        format!("the last line is no hint with {:?}", row.hint)
    } else if blank != Some("") {
        "no blank line before the hint".to_string()
    } else if !rest.iter().all(|cause| cause.starts_with("  ")) {
        "causes are not indented".to_string()
    } else {
        return None;
    };
    Some(format!("{what}\n$ pgfathom {}\n{}{}", row.typed, ended.stdout, ended.stderr))
}

/// Types every row in a folder of its own; all that go wrong are told at once.
fn check(rows: &[Row], prepare: impl Fn(&Folder)) {
    let mut problems = Vec::new();
    for row in rows {
        let folder = Folder::new();
        prepare(&folder);
        let dir = folder.path().display().to_string();
        let typed = words(&row.typed.replace("{dir}", &dir));
        let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        problems.extend(problem(row, &run(folder.path(), &typed), &dir));
    }
    assert!(
        problems.is_empty(),
        "{} of {} rows:\n\n{}",
        problems.len(),
        rows.len(),
        problems.join("\n----\n")
    );
}

#[test]
fn wrong_verbs() {
    check(
        &[
            usage("", "no verb given", "pgfathom --help"),
            usage("laod ycsb", "unknown verb \"laod\"", "did you mean load?"),
            usage("frobnicate", "unknown verb \"frobnicate\"", "pgfathom --help lists the verbs"),
            usage("help", "unknown verb \"help\"", "pgfathom --help lists the verbs"),
            usage("plan", "the verb \"plan\" is not in this version", "pgfathom --help"),
            usage("check db1", "the verb \"check\" is not in this version", "pgfathom self"),
            usage("matrix", "the verb \"matrix\" is not in this version", "pgfathom run"),
            usage("prove bank", "the verb \"prove\" is not in this version", "pgfathom verify --deep"),
            usage("watch", "the verb \"watch\" is not in this version", "pgfathom run"),
            usage("explain runs/x", "the verb \"explain\" is not in this version", "pgfathom report RUN"),
            usage("compare a b", "the verb \"compare\" is not in this version", "report --format json"),
            usage("serve", "the verb \"serve\" is not in this version", "report RUN"),
            usage("agent", "the verb \"agent\" is not in this version", "run drives from one machine"),
            usage("--frob", "unknown flag --frob", "pgfathom --help"),
            usage("--format yaml self", "--format: \"yaml\" is not known", "text, json"),
            usage("self --color sometimes", "--color: \"sometimes\" is not known", "auto, always, never"),
            usage("self -q -v", "-q/--quiet and -v/--verbose exclude each other", "one of the two"),
            usage("self -q -q", "-q/--quiet is given twice", "once"),
        ],
        |_| (),
    );
}

#[test]
fn wrong_flags_from_other_tools() {
    check(
        &[
            usage("run -h", "-h/--host needs a value", "help is --help or -?"),
            usage("run --help-me", "unknown flag --help-me for run", "--help"),
            usage("run -W bench", "unknown flag -W for run", "PGPASSWORD"),
            usage("run --password=secret bench", "unknown flag --password for run", "~/.pgpass"),
            usage("run -i bench", "unknown flag -i for run", "pgbench -i -s SCALE"),
            usage("run -S bench", "unknown flag -S for run", "-b select-only"),
            usage("run -N bench", "unknown flag -N for run", "-b simple-update"),
            usage("run -b ycsb-a --duration 60", "unknown flag --duration for run", "-T 60"),
            usage("run -b ycsb-a --clients 8", "unknown flag --clients for run", "-c 8"),
            usage("run -b ycsb-a --threads 8", "unknown flag --threads for run", "-j 2"),
            usage("run -b ycsb-a --user me", "unknown flag --user for run", "-U NAME"),
            usage("run --builtins ycsb-a", "unknown flag --builtins for run", "did you mean --builtin?"),
            usage("load ycsb --scale 10", "unknown flag --scale for load", "--rows or --size"),
            usage("run -b ycsb-a bench extra", "unexpected argument \"extra\"", "one last argument"),
            usage("run -b ycsb-a host=db1 dbname=bench", "unexpected argument \"dbname=bench\"", "quote it"),
            usage("run -b ycsb-a -d one two", "-d/--dbname and TARGET exclude each other", "one of the two"),
        ],
        |_| (),
    );
}

#[test]
fn wrong_values() {
    check(
        &[
            usage(
                "run -b ycsb-a -T 10x",
                "-T/--time: \"10x\" is not a duration: \"x\" is no unit",
                "10m, 1h30m",
            ),
            usage("run -b ycsb-a -T 0", "-T/--time: must be more than 0", "write seconds"),
            usage("run -b ycsb-a -T", "-T/--time needs a value", "-T VALUE"),
            usage(
                "run -b ycsb-a -T 5 -t 5",
                "-T/--time and -t/--transactions exclude each other",
                "one of the two",
            ),
            usage("run -b ycsb-a -t 0", "-t/--transactions: must be at least 1", "whole number"),
            usage("run -b ycsb-a -c 0", "-c/--client: must be at least 1", "whole number"),
            usage("run -b ycsb-a -c -3", "-3 stands where a value or a flag is expected", "ever negative"),
            usage(
                "run -b ycsb-a -c 1,2,4",
                "-c/--client: \"1,2,4\" is several numbers",
                "one number of sessions",
            ),
            usage("run -b ycsb-a -c 1e9", "-c/--client: 1000000000 is more than 100000 sessions", "smaller"),
            usage("run -b ycsb-a -c 8 -c 9", "-c/--client is given twice", "once"),
            usage("run -b ycsb-a -j 1.5", "-j/--jobs: \"1.5\" is not whole", "whole number"),
            usage("run -b ycsb-a -R fast", "-R/--rate: \"fast\" is not a rate", "transactions per second"),
            usage("run -b ycsb-a -R 0", "-R/--rate: must be more than 0", "transactions per second"),
            usage("run -b ycsb-a -L soon", "-L/--latency-limit: \"soon\" is not a duration", "milliseconds"),
            usage("run -b ycsb-a -P never", "-P/--progress: \"never\" is not a duration", "write seconds"),
            usage(
                "run -b ycsb-a --warmup 1h30",
                "--warmup: \"1h30\" is not a duration: a part has no unit",
                "1h30m",
            ),
            usage(
                "run -b ycsb-a -M fast",
                "-M/--protocol: \"fast\" is not known",
                "simple, extended, prepared",
            ),
            usage("run -b ycsb-a --wire jdbc", "--wire: \"jdbc\" is not known", "lean, libpq"),
            usage("run -b ycsb-a --max-tries many", "--max-tries: \"many\" is not a number", "whole number"),
            usage("run -b ycsb-a --random-seed x", "--random-seed: \"x\" is not a number", "whole number"),
            usage(
                "run -b ycsb-a@x",
                "-b/--builtin: the weight \"x\" of \"ycsb-a\" is not a whole number",
                "NAME@WEIGHT",
            ),
            usage("run -b @3", "-b/--builtin: \"@3\" names nothing", "NAME@WEIGHT"),
            usage("run -f a.sql -D limit", "-D/--define: \"limit\" has no =", "NAME=VALUE"),
            usage("run -f a.sql -D a-b=1", "-D/--define: \"a-b\" is not a variable name", "letters, digits"),
            usage("load", "load: WHAT is missing", "pgfathom load ycsb --rows 1M"),
            usage("load tpcc --rows 1", "WHAT: \"tpcc\" is not known", "known: ycsb"),
            usage("load ycsb", "load: --rows or --size is missing", "--rows 1M"),
            usage("load ycsb --rows 1M --size 1GB", "--rows and --size exclude each other", "one of the two"),
            usage("load ycsb --rows ten", "--rows: \"ten\" is not a number", "1e6, 1M"),
            usage("load ycsb --rows 1.5", "--rows: \"1.5\" is not whole", "whole number"),
            usage("load ycsb --rows 1e99", "--rows: \"1e99\" is not a number", "whole number"),
            usage("load ycsb --size 10", "--size: \"10\" has no unit", "10GB"),
            usage("load ycsb --size 10XB", "--size: \"10XB\" is not a size: \"XB\" is no unit", "GiB"),
            usage("load ycsb --rows 1 --partitions 0", "--partitions: must be at least 1", "whole number"),
            usage(
                "load ycsb --rows 1 --key-order random",
                "--key-order: \"random\" is not known",
                "scattered, sequential",
            ),
            usage("load ycsb --rows 1 --compressible 9", "--compressible: ...", "ratio from 1.0"),
            usage("load ycsb --rows 1 --compressible lots", "--compressible: ...", "ratio from 1.0"),
            usage("load ycsb --rows 1 --method insert", "--method: \"insert\" is not known", "copy, freeze"),
            usage(
                "load ycsb --rows 1 --seed -1",
                "-1 stands where a value or a flag is expected",
                "ever negative",
            ),
            usage("load ycsb --rows 1 -j 0", "-j/--jobs: must be at least 1", "whole number"),
            usage("report", "report: RUN is missing", "run directory"),
            usage("up", "up: KIND is missing", "pgfathom up single"),
            usage("up sharded", "KIND: \"sharded\" is not known", "known: single"),
            usage("demo --rows 0", "--rows: must be at least 1", "whole number"),
            usage("self -T 0", "-T/--time: must be more than 0", "write seconds"),
        ],
        |_| (),
    );
}

#[test]
fn wrong_files() {
    check(
        &[
            usage("self -T 1ms -o used", "run directory used already exists and is not empty", "-o DIR"),
            usage("self -T 1ms -o file", "cannot create file: ...", "-o DIR"),
        ],
        |folder| {
            folder.write("used/precious", "x").write("file", "x");
        },
    );
}

#[test]
fn an_argument_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let argument = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let ended: Ended = pgfathom(folder.path()).arg("run").arg(argument).output().expect("starts").into();
    let row = usage("run <not UTF-8>", "an argument is not valid UTF-8", "must be UTF-8");
    assert_eq!(problem(&row, &ended, ""), None);
}
