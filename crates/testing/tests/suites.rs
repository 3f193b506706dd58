//! `scripts/test` itself, with a cargo that names shell scripts as its test programs.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PASSED: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured'";

/// What a test program does when it is asked for the names of its tests.
fn listing(names: &[&str]) -> String {
    let lines: String = names.iter().map(|name| format!("{name}: test\\n")).collect();
    format!("[ \"$1\" != --list ] || {{ printf '{lines}'; exit; }}")
}

/// A folder that looks like a workspace to the script.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str, expected: &str) -> Workspace {
        let root = std::env::temp_dir().join(format!("pgfathom-suites-{}-{name}", std::process::id()));
        let workspace = Workspace(root);
        for folder in ["scripts", "crates/a"] {
            std::fs::create_dir_all(workspace.0.join(folder)).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
        std::fs::copy(script, workspace.0.join("scripts/test")).unwrap();
        std::fs::write(workspace.0.join("scripts/test-expected"), expected).unwrap();
        workspace
    }

    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// Runs the script over suites of these names.
    fn run(&self, suites: &[(&str, &str)], environment: &[(&str, &str)]) -> (Option<i32>, String) {
        self.run_named(&[], suites, environment)
    }

    /// The same, only for suites whose names hold one of these words.
    fn run_named(
        &self,
        words: &[&str],
        suites: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> (Option<i32>, String) {
        let manifest = self.0.join("crates/a/Cargo.toml");
        let artifact = |kind: &str, name: &str, is_test: bool, program: &Path| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"{}\",\"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{name}\",\"src_path\":\"x\"}},\"profile\":{{\"opt_level\":\"0\",\"test\":{is_test}}},\"executable\":\"{}\",\"fresh\":true}}\n",
                manifest.display(),
                program.display()
            )
        };
        let mut artifacts = artifact("bin", "supervise", false, Path::new(env!("CARGO_BIN_EXE_supervise")));
        for (name, script) in suites {
            artifacts.push_str(&artifact("test", name, true, &self.program(name, script)));
        }
        std::fs::write(self.0.join("artifacts"), artifacts).unwrap();
        let cargo = self.program("cargo", &format!("cat {}", self.0.join("artifacts").display()));
        let mut command = Command::new("bash");
        command
            .arg(self.0.join("scripts/test"))
            .args(words)
            .env("CARGO", cargo)
            .env_remove("PGFATHOM_STRICT");
        let settings = [
            "PGFATHOM_TEST_LIMIT_S",
            "PGFATHOM_TEST_SUITES",
            "PGFATHOM_TEST_DIR",
            "PGFATHOM_TEST_ALL",
            "PGFATHOM_TEST_PUSH",
            "PGFATHOM_TEST_POSTGRES",
            "CARGO_TARGET_DIR",
        ];
        for name in settings {
            command.env_remove(name);
        }
        let Output { status, stdout, stderr } = command.envs(environment.iter().copied()).output().unwrap();
        let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (status.code(), said)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const STRICT: (&str, &str) = ("PGFATHOM_STRICT", "1");

#[test]
fn a_failed_suite_fails_the_run_and_is_shown() {
    let workspace = Workspace::new("failed", "");
    let failing = "echo 'failures:'; echo 'the reason'; exit 101";
    let (code, said) = workspace.run(&[("good", PASSED), ("bad", failing)], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("===== a/bad") && said.contains("the reason"), "{said}");
    assert!(said.contains("1 of 2 suites failed; 1 tests passed"), "{said}");
    let (code, said) = workspace.run(&[("good", PASSED), ("bad", failing)], &[STRICT]);
    assert_eq!(code, Some(1), "{said}");
    let (code, said) = workspace.run(&[("good", PASSED)], &[STRICT]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_suite_that_hangs_is_ended_and_its_last_words_are_shown() {
    let workspace = Workspace::new("hung", "");
    let limit = ("PGFATHOM_TEST_LIMIT_S", "5");
    let (code, said) =
        workspace.run(&[("stuck", "echo 'last words'; sleep 600"), ("good", PASSED)], &[limit]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("HUNG") && said.contains("last words") && said.contains("no end after 5 s"),
        "{said}"
    );
    assert!(said.contains("1 of 2 suites failed"), "{said}");
}

#[test]
fn a_strict_run_fails_on_skips_that_nobody_accepted() {
    let expected = "skip psql  it is only compared with\n";
    let workspace = Workspace::new("skipped", expected);
    let skip = |need: &str| {
        format!("printf '{need}\\tsome_test\\tfile.rs:1\\tnot here\\n' >>\"$PGFATHOM_TEST_SKIPS\"; {PASSED}")
    };
    for (need, environment, code) in
        [("psql", vec![STRICT], 0), ("loop-devices", vec![STRICT], 1), ("loop-devices", vec![], 0)]
    {
        let ended = workspace.run(&[("one", &skip(need))], &environment);
        assert_eq!(ended.0, Some(code), "{need}: {}", ended.1);
        assert!(ended.1.contains("skipped: 1") && ended.1.contains("some_test"), "{}", ended.1);
    }
}

#[test]
fn a_suite_is_told_the_releases_that_it_is_made_on() {
    let workspace = Workspace::new("releases", "servers a/one 15 18\n");
    let is_told =
        |releases: &str| format!("[ \"$PGFATHOM_TEST_POSTGRES\" = '{releases}' ] || exit 101; {PASSED}");
    let suites = [("one", is_told("15 18")), ("other", is_told(""))];
    let (code, said) = workspace.run(&[("one", &suites[0].1), ("other", &suites[1].1)], &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = workspace.run(&[("one", &is_told(""))], &[("PGFATHOM_TEST_ALL", "1")]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_strict_run_asserts_the_releases_that_a_suite_ran_on() {
    let workspace = Workspace::new("servers", "servers a/one 15 18\n");
    let on = |majors: &str| {
        format!("for major in {majors}; do echo $major >>\"$PGFATHOM_TEST_SERVERS\"; done; {PASSED}")
    };
    let (code, said) = workspace.run(&[("one", &on("18 15 18"))], &[STRICT]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("15: 1  18: 2"), "{said}");
    let (code, said) = workspace.run(&[("one", &on("18"))], &[STRICT]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a/one did not run on PostgreSQL 15"), "{said}");
    // A suite that is renamed or gone is noticed, too.
    let (code, said) = workspace.run(&[("other", PASSED)], &[STRICT]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no such suite"), "{said}");
}

#[test]
fn what_is_left_for_the_whole_run_is_told_and_only_what_the_list_names() {
    let workspace = Workspace::new(
        "later",
        "later a/one slow\nlater a/one slower\nlater a/two\nthin a/three half of it\n",
    );
    let called_with = |arguments: &str| {
        let tests = listing(&["slow", "slower", "slowest", "quick"]);
        format!("{tests}; [ \"$*\" = '{arguments}' ] || exit 101; {PASSED}")
    };
    // One that was renamed would otherwise never be made again.
    let renamed = format!("{}; {PASSED}", listing(&["slow", "slowest"]));
    let (code, said) = workspace.run(&[("one", &renamed)], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("name tests of a/one that it has not got: slower"), "{said}");
    let thin = |part: &str| format!("echo '{part}' >>\"$PGFATHOM_TEST_LATER\"; {PASSED}");
    let suites = [
        ("one", called_with("--exact slowest quick")),
        ("two", "exit 101".to_owned()),
        ("three", thin("half of it")),
    ];
    let suites = suites.each_ref().map(|(name, script)| (*name, script.as_str()));
    let (code, said) = workspace.run(&suites, &[STRICT]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("left for make test-all: 3 whole tests or suites, 1 parts of tests"), "{said}");
    assert!(said.contains("slow slower") && said.contains("half of it"), "{said}");
    // The whole run leaves nothing out.
    let whole = ("PGFATHOM_TEST_ALL", "1");
    let (code, said) = workspace.run(&[("one", &called_with("")), ("two", PASSED)], &[whole]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 suites, 2 tests passed"), "{said}");
    // A part that nobody has put on the list.
    let (code, said) = workspace.run(&[("three", &thin("the other half"))], &[STRICT]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("thin a/three the other half"), "{said}");
}

#[test]
fn what_takes_long_waits_for_a_push_and_a_named_suite_leaves_nothing_to_it() {
    let workspace = Workspace::new(
        "push",
        "later a/one never\npush a/one slow\nservers a/one 15\npush a/two\nservers a/two 18\n",
    );
    let called_with = |arguments: &str| {
        let tests = listing(&["never", "slow", "quick"]);
        format!(
            "{tests}; [ \"$*\" = '{arguments}' ] || exit 101; echo 15 >>\"$PGFATHOM_TEST_SERVERS\"; {PASSED}"
        )
    };
    let two = format!("echo 18 >>\"$PGFATHOM_TEST_SERVERS\"; {PASSED}");
    // Before a commit; the releases are asked for where all tests are that need them.
    let (code, said) =
        workspace.run(&[("one", &called_with("--exact quick")), ("two", "exit 101")], &[STRICT]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("left for continuous integration (.ci/run): 2 whole tests or suites"), "{said}");
    assert!(said.contains("left for make test-all: 1 whole tests or suites"), "{said}");
    // At a push.
    let push = ("PGFATHOM_TEST_PUSH", "1");
    let suites = [("one", called_with("--exact slow quick")), ("two", two.clone())];
    let suites = suites.each_ref().map(|(name, script)| (*name, script.as_str()));
    let (code, said) = workspace.run(&suites, &[STRICT, push]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("left for continuous integration"), "{said}");
    // And in the whole run.
    let all = ("PGFATHOM_TEST_ALL", "1");
    let (code, said) = workspace.run(&[("one", &called_with("")), ("two", &two)], &[STRICT, all]);
    assert_eq!(code, Some(0), "{said}");
    // A suite that somebody names.
    let (code, said) = workspace.run_named(&["a/"], &suites, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 suites, 2 tests passed"), "{said}");
}

#[test]
fn each_module_of_the_program_that_holds_them_all_is_a_suite() {
    let workspace = Workspace::new("modules", "servers a/tpcc 18\nlater a/crash slow\n");
    let names = ["crash::quick", "crash::slow", "crash_tpcc::dies", "tpcc::fills", "tpcc::inner::counts"];
    let is_told = r#"case "$*" in
        '--exact crash::quick' | '--exact crash_tpcc::dies') [ -z "$PGFATHOM_TEST_POSTGRES" ] ;;
        '--exact tpcc::fills tpcc::inner::counts') [ "$PGFATHOM_TEST_POSTGRES" = 18 ] && echo 18 >>"$PGFATHOM_TEST_SERVERS" ;;
        *) false ;;
    esac || exit 101"#;
    let all = format!("{}; {is_told}; {PASSED}", listing(&names));
    let (code, said) = workspace.run(&[("all", &all)], &[STRICT]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 suites, 3 tests passed"), "{said}");
    for suite in ["a/crash ", "a/crash_tpcc ", "a/tpcc "] {
        assert!(said.contains(suite), "{said}");
    }
    // A program that says nothing about its tests has not been run.
    let (code, said) = workspace.run(&[("all", "true")], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("names no tests"), "{said}");
}

#[test]
fn the_slowest_suite_of_the_last_run_is_the_first_of_the_next() {
    let workspace = Workspace::new("order", "");
    let suites = [("quick", PASSED), ("slow", &*format!("sleep 2; {PASSED}"))];
    let (target, one) = (workspace.0.join("target"), ("PGFATHOM_TEST_SUITES", "1"));
    std::fs::create_dir_all(&target).unwrap();
    let target = ("CARGO_TARGET_DIR", target.to_str().unwrap());
    workspace.run(&suites, &[one, target]);
    let (code, said) = workspace.run(&suites, &[one, target]);
    assert_eq!(code, Some(0), "{said}");
    let place = |name: &str| said.find(name).unwrap_or_else(|| panic!("{said}"));
    assert!(place("a/slow") < place("a/quick"), "{said}");
}
