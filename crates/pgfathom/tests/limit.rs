//! A client that is itself the limit must say so. In a test binary of its own: it has to get a CPU to be busy on.

use crate::support;
use lab::throwaway::{Throwaway, installations};
use support::{Ended, Folder, pgfathom};

#[test]
fn a_client_that_is_the_limit_says_so_and_ends_with_5() {
    let installation =
        installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
    let cluster = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let folder = Folder::new();
    // Thousands of expressions for one trivial statement: the worker thread cannot be anything but busy.
    let mut script = "\\set x random_gaussian(1, 1000000, 5.0)\n".repeat(20_000);
    script.push_str("SELECT 1;\n");
    folder.write("heavy.sql", &script);
    let drive = |seconds: u32| -> Ended {
        let mut command = pgfathom(folder.path());
        command.args(["run", "-f", "heavy.sql", "-c", "4", "-j", "1", "-T", &seconds.to_string()]);
        command.args(["-U", "postgres", "-p", &cluster.port().to_string(), "-d", "postgres", "-h"]);
        command.arg(cluster.socket_dir());
        command.output().expect("the command starts").into()
    };
    let mut ended = drive(2);
    // Whatever else runs on this machine may take the CPU for a while: patience, but no lower bar.
    for seconds in [4, 8, 16, 16] {
        if ended.exit == Some(5) {
            break;
        }
        eprintln!("not busy enough:\n{}", ended.stdout);
        ended = drive(seconds);
    }
    assert_eq!(ended.exit, Some(5), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("client was the limit"), "{}", ended.stdout);
    assert!(ended.stdout.contains("INVALID"), "{}", ended.stdout);
}
