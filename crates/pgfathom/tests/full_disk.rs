//! Where results cannot be kept: a full disk under the run directory, a limit on files, a full device or a closed pipe as standard output.
//! The verb tells its results all the same where it can, and never ends as if all were well.

use crate::labs::ServerLab;
use crate::support;
use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use lab::throwaway::{Throwaway, installations};
use support::{Ended, Folder, pgfathom, run};

/// A server with rows, and a folder to type commands in.
/// A server with some rows, and a run directory.
fn loaded() -> ServerLab {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let lab = ServerLab::new(Throwaway::start(&installation, &[]).expect("a server"));
    lab.expect(0, "load ycsb --rows 500 -o loaded");
    lab
}

/// Runs the command behind a line of shell that ends with `exec "$0" "$@"`.
fn behind(lab: &ServerLab, shell: &mut Command, arguments: &str) -> Ended {
    let plain = pgfathom(lab.folder.path());
    shell.arg(plain.get_program()).args(arguments.split_whitespace());
    shell.current_dir(lab.folder.path()).stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    lab.describe(shell);
    let ended: Ended = shell.output().expect("a shell").into();
    eprintln!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
    ended
}

/// What every verb that records does, with something that its results say.
const RECORDING: [(&str, &str); 6] = [
    ("run -b ycsb-a -c 2 -T 1", "ycsb-a"),
    ("run -b ycsb-c -c 1,2 -T 1", "ycsb-c"),
    ("load ycsb --rows 500", "500"),
    ("verify", "500"),
    ("watch -T 2", "recorded"),
    ("self -T 100ms", "null server"),
];

/// What is left for later.
const FORMATS: &str = "every size of a disk with both formats: each with one of them";

fn full_device() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has one")
}

fn to_full_device(mut command: Command) -> Ended {
    command.stdout(full_device()).output().expect("it starts").into()
}

#[test]
fn standard_output_on_a_full_device_is_an_error_of_every_verb() {
    let lab = loaded();
    let mut calls: Vec<String> = [
        "--help",
        "-?",
        "--version",
        "-V",
        "run --help",
        "watch -?",
        "run -b list",
        "report loaded",
        "report --format json loaded",
        "explain loaded",
        "explain --format json loaded",
    ]
    .map(String::from)
    .to_vec();
    for (number, (arguments, _)) in RECORDING.into_iter().enumerate() {
        calls.push(format!("{arguments} --format json -o json{number}"));
        // What a load says goes to stderr.
        if !arguments.starts_with("load") {
            calls.push(format!("{arguments} -o text{number}"));
        }
    }
    for call in calls {
        let ended = to_full_device(lab.command(&call));
        assert_eq!(ended.exit, Some(1), "{call}: {}", ended.stderr);
        let told = "error: cannot write to standard output: No space left on device";
        assert!(ended.stderr.contains(told), "{call}: {}", ended.stderr);
    }
    // What was measured is there, only not printed.
    assert!(lab.folder.path().join("json0/report.html").exists());
}

#[test]
fn a_closed_pipe_is_no_failure_and_no_panic() {
    let folder = Folder::new();
    let lab = loaded();
    let calls = [
        "--help",
        "--version",
        "run -b list",
        "report loaded",
        "verify --format json -o verified",
        "watch -T 1",
    ];
    for call in calls {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended: Ended = lab.command(call).stdout(writer).output().expect("it starts").into();
        assert_eq!(ended.exit, Some(0), "{call}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{call}: {}", ended.stderr);
    }
    // Both at once, as behind `2>&1 | head -1`.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = pgfathom(folder.path());
    let again = writer.try_clone().expect("a second end");
    let status = command.args(["run", "--wrong"]).stdout(writer).stderr(again).status().expect("it starts");
    assert_eq!(status.code(), Some(1));
}

/// The directory is told to be incomplete, in the words of `why`, after the result `said`.
fn assert_unwhole(call: &str, ended: &Ended, said: &str, why: &str) {
    // 5: this machine was too busy to measure anything.
    assert!(matches!(ended.exit, Some(2 | 5)), "{call}: {:?}\n{}", ended.exit, ended.stderr);
    assert!(ended.stdout.contains(said), "{call}: {}", ended.stdout);
    let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(
        error.contains(" is incomplete: cannot write ") && error.contains(why),
        "{call}: {}",
        ended.stderr
    );
    assert!(ended.stderr.lines().last().is_some_and(|line| line.starts_with("run: ")), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{call}: {}", ended.stderr);
}

#[test]
fn a_limit_on_files_under_the_run_directory_is_an_error_and_the_results_are_told() {
    let lab = loaded();
    for (number, (arguments, said)) in RECORDING.into_iter().enumerate() {
        for format in ["text", "json"] {
            // The report page alone is larger, and whatever is sampled soon is.
            for blocks in [8, 64] {
                if (blocks == 8) != (format == "text") && !testing::is_thorough(FORMATS) {
                    continue;
                }
                let call = format!("{arguments} --format {format} -o limited-{number}-{format}-{blocks}");
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
                let ended = behind(&lab, &mut shell, &call);
                let said = if format == "json" { "\"verb\"" } else { said };
                // A load tells what it did on stderr.
                let is_load = arguments.starts_with("load") && format == "text";
                assert_unwhole(&call, &ended, if is_load { "" } else { said }, "File too large");
            }
        }
    }
}

#[test]
fn a_full_disk_under_the_run_directory_is_an_error_and_the_results_are_told() {
    let lab = loaded();
    if let Err(lack) = testing::needs::mounts() {
        return testing::skip(&lack);
    }
    std::fs::create_dir(lab.folder.path().join("disk")).expect("a folder");
    for (arguments, said) in RECORDING {
        for format in ["text", "json"] {
            // Room for the beginning: for nothing more, for some samples, for all but the page.
            for pages in [6, 10, 24] {
                if (pages == 10) != (format == "json") && !testing::is_thorough(FORMATS) {
                    continue;
                }
                let call = format!("{arguments} --format {format} -o disk/run");
                let mut shell = Command::new("unshare");
                let script = format!("mount -t tmpfs -o size={}k tmpfs disk; exec \"$0\" \"$@\"", pages * 4);
                shell.args(["-m", "sh", "-c", &script]);
                let ended = behind(&lab, &mut shell, &call);
                let said = if format == "json" { "\"verb\"" } else { said };
                let is_load = arguments.starts_with("load") && format == "text";
                assert_unwhole(&call, &ended, if is_load { "" } else { said }, "No space left on device");
            }
        }
    }
    // No room to begin with: refused before anything is done, and nothing is left lying there.
    let mut shell = Command::new("unshare");
    let script = "mount -t tmpfs -o size=16k tmpfs disk; head -c 16k /dev/zero >disk/full; \"$0\" \"$@\"; code=$?; ls disk; exit $code";
    shell.args(["-m", "sh", "-c", script]);
    let ended = behind(&lab, &mut shell, "run -b ycsb-c -T 1 -o disk/run");
    assert_eq!(ended.exit, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
    assert_eq!(ended.stdout.trim(), "full");
}

#[test]
fn a_page_or_findings_that_do_not_fit_are_an_error_of_report_and_explain() {
    let lab = loaded();
    let whole = run(lab.folder.path(), &["report", "loaded"]);
    assert_eq!(whole.exit, Some(0), "{}", whole.stderr);
    for call in
        ["report loaded", "report --format json loaded", "explain loaded", "explain --format json loaded"]
    {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]);
        let ended = behind(&lab, &mut shell, call);
        assert_eq!(ended.exit, Some(1), "{call}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("cannot write") && ended.stderr.contains("File too large"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stdout.is_empty(), "{call} tells the answer all the same");
    }
}
