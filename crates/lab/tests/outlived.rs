//! Processes that outlive their server.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use connect::control;
use lab::local::{Instance, down, installations, up};
use testing::wait_for;

use crate::local::{Place, postmaster_pid, processes_below, signal};

/// A worker can outlive a killed server, and PostgreSQL does not start beside it. Whoever starts the server again has to end it.
#[test]
fn a_process_that_outlives_its_server_is_ended_before_the_next_start() {
    let place = Place::new();
    let options = place.options(&installations()[0]);
    let cluster = up(&options).unwrap();
    let outlive = || {
        let mut client = control::connect(&cluster.spec).unwrap();
        let pid: i32 = client.query_one("select pg_catalog.pg_backend_pid()", &[]).unwrap().get(0);
        let pid = u32::try_from(pid).unwrap();
        // A stopped process does not notice the end of the server.
        signal("-STOP", pid);
        signal("-KILL", postmaster_pid(&cluster));
        wait_for("only one process is left", || processes_below(&cluster.dir) == [pid]);
    };
    outlive();
    let again = up(&options).unwrap();
    assert_eq!(again.initdb_s, 0.0);
    outlive();
    let node = &cluster.file.node[0];
    let instance = Instance::of_node(&cluster.file, node).unwrap().unwrap();
    assert!(instance.is_up() && !instance.has_postmaster());
    instance.start().unwrap();
    assert!(instance.has_postmaster());
    control::connect(&cluster.spec).unwrap();
    down(&cluster.dir, &place.registry()).unwrap();
    place.assert_gone(&cluster.dir);
}
