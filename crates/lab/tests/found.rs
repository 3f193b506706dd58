//! Servers that another program started: found by a session, ended, and started again as they were.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use lab::local::{Backend, Instance, Launch};
use lab::throwaway::{StopMode, Throwaway, installations};
use testing::on_each;

fn backend(server: &Throwaway) -> Backend {
    let number = |sql: &str| server.value(sql).unwrap().unwrap().parse::<i64>().unwrap();
    // Each statement has a session of its own, so the process is that of one that lasts: the checkpointer's, say.
    let pid = number("select pid from pg_stat_activity where backend_type = 'checkpointer'");
    let started_s = number("select extract(epoch from pg_postmaster_start_time())::bigint");
    Backend { pid: pid.try_into().unwrap(), started_s, port: server.port() }
}

#[test]
fn a_server_of_others_is_ended_and_started_with_the_arguments_it_had() {
    on_each(&installations(), |installation| {
        let mut server = Throwaway::start(installation, &[]).unwrap();
        server.stop(StopMode::Fast).unwrap();
        // As a DBA starts it: with a setting that is in no file.
        let data_dir = server.data_dir().canonicalize().unwrap();
        let arguments = ["-D", &data_dir.display().to_string(), "-c", "work_mem=7MB"].map(str::to_owned);
        let launch = Launch {
            bin_dir: installation.bin_dir.clone(),
            arguments: arguments.to_vec(),
            log: server.log_path(),
        };
        Instance::launched(&launch, &data_dir).unwrap().start().unwrap();
        let work_mem = || server.value("show work_mem").unwrap().unwrap();
        assert_eq!(work_mem(), "7MB");

        let found = Instance::of_backend(backend(&server), Some(&data_dir)).unwrap();
        assert_eq!(found.launch().unwrap().arguments, arguments);
        assert_eq!(found.data_dir(), data_dir);
        found.kill9().unwrap();
        assert!(server.execute("select 1").is_err());
        found.start().unwrap();
        assert_eq!(work_mem(), "7MB");
        // Without a cluster file as well.
        let found = Instance::of_backend(backend(&server), None).unwrap();

        // What does not agree is another server's.
        let is = backend(&server);
        let refused = |backend: Backend| Instance::of_backend(backend, None).unwrap_err();
        assert!(refused(Backend { port: is.port + 1, ..is }).contains("is another one"));
        assert!(refused(Backend { started_s: is.started_s - 1_000, ..is }).contains("is another one"));
        let elsewhere = std::env::temp_dir();
        let words = Instance::of_backend(is, Some(&elsewhere)).unwrap_err();
        assert!(words.contains("and the cluster file names"), "{words}");
        found.kill9().unwrap();
    });
}
