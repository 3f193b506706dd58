//! `prove` on clusters that are made for it: what is said, what the exit code is, and that nothing is left.

#[path = "support/mistakes.rs"]
mod mistakes;
mod support;

use mistakes::{check, usage};
use support::{Folder, run};

#[test]
fn what_is_wrong_with_a_proof_is_said_before_it_begins() {
    check(
        &[
            usage(
                "prove hermitage --fault kill@1s",
                "prove hermitage plays scripts...",
                "prove bank --fault",
            ),
            usage(
                "prove ack --elle x.edn",
                "prove ack writes no history for --elle",
                "check, verreg and append",
            ),
            usage(
                "prove verreg --elle x.txt",
                "--elle: \"x.txt\" does not say which notation it is",
                ".edn or .json",
            ),
            usage("prove check h.bin --elle here.edn", "--elle: here.edn is there already", "not there yet"),
            usage(
                "prove verreg --isolation snapshot",
                "--isolation: \"snapshot\" is no isolation level",
                "repeatable read",
            ),
        ],
        |folder| {
            folder.write("here.edn", "");
        },
    );
}

#[test]
fn random_transactions_are_written_down_and_checked() {
    let folder = Folder::new();
    let typed = "prove verreg --local single --isolation serializable -T 1 --elle load.edn -o load";
    let proved = run(folder.path(), &typed.split(' ').collect::<Vec<_>>());
    // Whether the control shows something in so short a time is up to the machine; that nothing is refuted is not.
    assert!(matches!(proved.exit, Some(0 | 8)), "{}\n{}", proved.stdout, proved.stderr);
    for words in [
        "verreg: random transactions refute nothing of SERIALIZABLE",
        "control (the same load at REPEATABLE",
        "share fresh",
    ] {
        let page: Vec<&str> = proved.stdout.split_whitespace().collect();
        assert!(page.join(" ").contains(words), "{words:?} is missing in:\n{}", proved.stdout);
    }
    for history in ["load/history.bin", "load.edn"] {
        let checked = run(folder.path(), &["prove", "check", history, "--level", "serializable"]);
        assert_eq!(checked.exit, Some(0), "{history}: {}\n{}", checked.stdout, checked.stderr);
    }
}

#[test]
fn promises_are_watched_on_clusters_made_for_it() {
    let folder = Folder::new();
    let kept = run(
        folder.path(),
        &[
            "prove",
            "ack",
            "--local",
            "single",
            "--fault",
            "kill@300ms,heal@400ms",
            "-T",
            "1",
            "--repeat",
            "2",
            "-o",
            "kept",
        ],
    );
    assert_eq!(kept.exit, Some(0), "{}\n{}", kept.stdout, kept.stderr);
    for words in [
        "kept",
        "ack: nothing that was acknowledged is lost",
        "kill -9",
        "with 95 % confidence",
        "control (",
        "2 of 2",
        "(min / median / max of 2)",
    ] {
        assert!(kept.stdout.contains(words), "{words:?} is missing in:\n{}", kept.stdout);
    }
    let page = std::fs::read_to_string(folder.path().join("kept/report.html")).expect("a page");
    assert!(page.contains("id=\"promises\""));
    let sharded = run(folder.path(), &["prove", "bank", "--local", "sharded", "-T", "2", "-o", "sharded"]);
    assert_eq!(sharded.exit, Some(0), "{}\n{}", sharded.stdout, sharded.stderr);
    assert!(sharded.stdout.contains("by design") && sharded.stdout.contains("change:"), "{}", sharded.stdout);
    // A server alone cannot be cut off from others: that is an answer, and not a skipped test.
    let impossible = run(
        folder.path(),
        &["prove", "ack", "--local", "single", "--fault", "partition@1s", "-T", "1", "-o", "impossible"],
    );
    assert_eq!(impossible.exit, Some(8), "{}\n{}", impossible.stdout, impossible.stderr);
    assert!(
        impossible.stdout.contains("not possible here")
            && impossible.stdout.contains("there is no other node"),
        "{}",
        impossible.stdout
    );
    let healed = run(folder.path(), &["prove", "--heal"]);
    assert_eq!(healed.exit, Some(0), "{}\n{}", healed.stdout, healed.stderr);
    let more = run(folder.path(), &["prove", "--heal", "--local", "single"]);
    assert_eq!(more.exit, Some(1), "--heal stands alone: {}", more.stderr);
}

#[test]
fn wrong_trials() {
    check(
        &[
            usage("prove hb --repeat 0", "--repeat: must be at least 1", "whole number"),
            usage("prove hb --repeat 5000", "--repeat: 5000 is more than 1000 repeats", "ten tell"),
            usage(
                "prove hb --repeat 3 --fault kill@1s,promote@2s",
                "a promotion uses the cluster up: it cannot be repeated on this one",
                "--local replicated",
            ),
            usage("prove ack --fault partition", "--fault: \"partition\" does not say when", "partition"),
            usage("prove ack --fault partition=3@1s", "--fault: partition takes no value", "heal"),
        ],
        |_| {},
    );
}
