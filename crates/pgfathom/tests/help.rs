//! What `--help` shows, and how the command behaves at the edges: no terminal, closed streams, NO_COLOR.

use crate::support;
use std::process::{Command, Stdio};
use support::{Ended, Folder, pgfathom, run};

const VERBS: [&str; 14] = [
    "demo", "up", "down", "plan", "load", "verify", "prove", "run", "check", "watch", "matrix", "explain",
    "report", "self",
];

#[test]
fn help_lists_every_verb_and_exit_code() {
    let folder = Folder::new();
    let help = run(folder.path(), &["--help"]);
    assert_eq!((help.exit, help.stderr.as_str()), (Some(0), ""));
    for verb in VERBS {
        assert!(help.stdout.contains(&format!("\n  {verb} ")), "{verb} is missing in:\n{}", help.stdout);
    }
    for code in [
        "  0 ok",
        "  1 usage",
        "  2 errors",
        "  3 verify",
        "6 check found a failure, or a plan does not fit",
        "5 run invalid",
        "8 cannot tell",
        "130 interrupted",
    ] {
        assert!(help.stdout.contains(&format!(" {}", code.trim_start())), "{code}");
    }
}

#[test]
fn every_spelling_of_help_gives_the_same_text_and_h_is_the_host() {
    let folder = Folder::new();
    for verb in VERBS {
        let long = run(folder.path(), &[verb, "--help"]);
        let short = run(folder.path(), &[verb, "-?"]);
        assert_eq!((long.exit, &long.stdout), (Some(0), &short.stdout));
        assert!(long.stdout.contains(&format!("Usage: pgfathom {verb}")), "{}", long.stdout);
        assert!(long.stdout.lines().all(|line| line.chars().count() <= 110), "{verb}: a line is too wide");
    }
    for verb in ["load", "verify", "prove", "run", "check", "watch"] {
        let help = run(folder.path(), &[verb, "--help"]).stdout;
        for flag in [
            "-h, --host",
            "-p, --port",
            "-U, --username",
            "-d, --dbname",
            "--cluster",
            "[TARGET]",
            "-o, --output-dir",
        ] {
            assert!(help.contains(flag), "{verb} lacks {flag}");
        }
    }
}

#[test]
fn the_flags_of_each_verb_are_these() {
    // A flag that disappears breaks somebody's script: it must be noticed here.
    let common = "--color --format --help --quiet --verbose";
    let connection = "--cluster --dbname --host --port --username";
    let expected = [
        ("demo", "--client --keep --output-dir --pg-bin --rows --time --watch".to_string()),
        (
            "load",
            format!(
                "{connection} --chunk-rows --compressible --deadline --document-size --fillfactor --force --foreign-keys --jobs --keep-free \
                 --key-order --method --output-dir --partitions --plan --progress --restart --rows --scale --seed \
                 --segment --size --tablespace --tablespaces --unlogged --via --watch"
            ),
        ),
        (
            "plan",
            format!(
                "{connection} --agents --block-size --calibrate[=<WHERE>] --check --client --client-cores --compressible --disk --disk-read --disks \
                 --document-size --explain --file --fillfactor --freeze --from --jobs --keep-free --key-order --max-wal-size --nodes --output \
                 --page --partitions --ping --price-client --price-node --raid --rate --rows --rows-per-transaction --scale --seed --size \
                 --standbys --tablespaces --tps --usable --vacuum-cost-delay --vacuum-cost-limit --vacuum-workers --wal-rate --what-if --within"
            ),
        ),
        ("verify", format!("{connection} --deep --jobs --lag-limit --output-dir --progress --standbys")),
        (
            "prove",
            format!(
                "{connection} --allow-faults --client --conditions --elle --fault --heal --isolation --jobs --level --local --output-dir --progress \
                 --random-seed --repeat --set --strict --synchronous-commit --through --time --warehouses --watch"
            ),
        ),
        (
            "run",
            format!(
                "{connection} --analysts --builtin --client --connect --data --deck --define --document-size --efficiency --file --isolation --jobs --keys \
                 --latency-limit --max-tries --no-analyze --no-checkpoint --no-delays --no-vacuum --output-dir --plan --poller --progress \
                 --protocol --random-seed --rate --read-update --regular --repeat --scale --settle --simulate --statements-per-transaction --time --transactions \
                 --until-slo --warehouses --warmup --watch --wire"
            ),
        ),
        (
            "up",
            "--checksums --delay --dir --nodes --partitions --pg-bin --port --preset --set --socket-dir --standbys --sync --synchronous-commit --synchronous-mode --tcp --ttl"
                .to_string(),
        ),
        ("down", "--all".to_string()),
        ("watch", format!("{connection} --bundle[=<FILE>] --core --interval --no-host --output-dir --perf --pooler --progress --redact --ssh --sysroot --time --what-if")),
        (
            "matrix",
            format!(
                "{connection} --client --jobs --only --output-dir --progress --random-seed --rounds --time --warmup --wire"
            ),
        ),
        ("explain", "--against --during".to_string()),
        (
            "check",
            format!(
                "{connection} --accept --block --copy-program --depths --disk --every --for --hosts --one-pair-at-a-time --output-dir --plan \
                 --probe-time --program --size --skip --ssh --ssh-program --tools"
            ),
        ),
        ("report", "--check --compare --out --plan".to_string()),
        ("self", "--output-dir --time".to_string()),
    ];
    let folder = Folder::new();
    for (verb, flags) in expected {
        let help = run(folder.path(), &[verb, "--help"]).stdout;
        let mut shown: Vec<&str> = help
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
            .collect();
        shown.sort_unstable();
        let all = format!("{flags} {common}");
        let mut wanted: Vec<&str> = all.split_whitespace().collect();
        wanted.sort_unstable();
        assert_eq!(shown, wanted, "{verb}");
    }
}

#[test]
fn version_is_the_crate_s() {
    let folder = Folder::new();
    for flag in ["-V", "--version"] {
        let version = run(folder.path(), &[flag]);
        assert_eq!(version.stdout, format!("pgfathom {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn colour_is_on_only_when_asked_for_or_on_a_terminal() {
    let folder = Folder::new();
    let colored = |ended: &Ended| ended.stderr.contains('\x1b');
    assert!(!colored(&run(folder.path(), &["wrong"])), "stderr is no terminal here");
    assert!(colored(&run(folder.path(), &["--color", "always", "wrong"])));
    assert!(!colored(&run(folder.path(), &["--color", "never", "wrong"])));
    // An explicit flag beats the environment.
    let no_color: Ended = pgfathom(folder.path())
        .env("NO_COLOR", "1")
        .args(["--color=always", "wrong"])
        .output()
        .expect("starts")
        .into();
    assert!(colored(&no_color));
    if let Err(lack) = testing::needs::program("script") {
        return testing::skip(&lack);
    }
    // On a terminal: colour, unless NO_COLOR (set at all, also empty) or TERM=dumb says no.
    for (setting, expected) in [
        (None, true),
        (Some(("NO_COLOR", "")), false),
        (Some(("NO_COLOR", "1")), false),
        (Some(("TERM", "dumb")), false),
    ] {
        let output = on_a_terminal(folder.path(), setting);
        assert!(output.contains("unknown verb"), "{output:?}");
        assert_eq!(output.contains("\x1b[1;31m"), expected, "{setting:?}: {output:?}");
    }
}

/// Runs `pgfathom wrong` on a pseudo-terminal that script(1) of util-linux makes.
fn on_a_terminal(folder: &std::path::Path, setting: Option<(&str, &str)>) -> String {
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("{} wrong", env!("CARGO_BIN_EXE_pgfathom")), "/dev/null"])
        .current_dir(folder);
    command.env_remove("NO_COLOR").env("TERM", "xterm").stdin(Stdio::null());
    if let Some((name, value)) = setting {
        command.env(name, value);
    }
    let output = command.output().expect("script starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let folder = Folder::new();
    let mut child = testing::Running::new(
        pgfathom(folder.path())
            .args(["run", "--help"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts"),
    );
    drop(child.stdout.take());
    let ended: Ended = child.output().expect("ends").into();
    assert_eq!(ended.stderr, "");
    assert_eq!(ended.exit, Some(0));
}

#[test]
fn closed_streams_are_no_panic() {
    let folder = Folder::new();
    let command = format!("{} self -T 1ms -o closed <&- >&- 2>&-", env!("CARGO_BIN_EXE_pgfathom"));
    let status =
        Command::new("sh").args(["-c", &command]).current_dir(folder.path()).status().expect("sh starts");
    assert_eq!(status.code(), Some(0));
    assert!(folder.path().join("closed/run.json").is_file());
}

#[test]
fn json_goes_to_stdout_alone_and_the_run_directory_is_the_last_line_of_talk() {
    let folder = Folder::new();
    let ended = run(folder.path(), &["self", "-T", "1ms", "--format", "json", "-o", "here"]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let summary: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("stdout is JSON and nothing else");
    assert_eq!(summary["verb"], "self");
    assert_eq!(ended.stderr.lines().last(), Some("run: here"));
    let quiet = run(folder.path(), &["self", "-q", "-T", "1ms"]);
    assert_eq!(quiet.stderr.lines().count(), 1, "{}", quiet.stderr);
    assert!(quiet.stderr.starts_with("run: runs/"), "{}", quiet.stderr);
}
