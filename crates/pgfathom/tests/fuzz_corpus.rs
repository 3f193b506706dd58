//! Replays the seeds of the fuzz targets about files and mutates them, so that faults are found, and stay found, without a fuzzer.

#[path = "../../../fuzz/exercise/bundle.rs"]
mod bundle;
#[path = "../../../fuzz/exercise/cluster_file.rs"]
mod cluster_file;
#[path = "../../../fuzz/exercise/perf_script.rs"]
mod perf_script;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/exercise/run_directory.rs"]
mod run_directory;
#[path = "../../../fuzz/exercise/server_log.rs"]
mod server_log;

#[test]
fn files_of_run_directories() {
    replay::replay_slow("run_directory", run_directory::exercise);
}

#[test]
fn bundles() {
    replay::replay("bundle", bundle::exercise);
}

#[test]
fn logs_of_servers() {
    replay::replay("server_log", server_log::exercise);
}

#[test]
fn texts_of_perf() {
    replay::replay("perf_script", perf_script::exercise);
}

#[test]
fn cluster_files() {
    replay::replay("cluster_file", cluster_file::exercise);
}
