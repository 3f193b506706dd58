//! Disks measured by fio, with the same tests as the probe of pgfathom.

use super::shell::{Shell, watching};
use super::{keep, plain};
use crate::link::quoted;
use crate::probe::disk::{COMMITS_BYTES, RESERVE_SHARE, SEQUENTIAL_BYTES, sequential_depths};
use crate::probe::message::DiskPlan;
use crate::probe::scratch;
use record::check::{Disk, DiskTest, Distribution, Pattern};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The time of a test beside its own: fio first writes its file.
const PATIENCE: Duration = Duration::from_secs(180);
const NS_PER_US: f64 = 1000.0;
const NS_PER_MS: f64 = 1e6;

/// Runs all tests.
pub(super) fn measure(
    shell: &Shell<'_>,
    plan: &DiskPlan,
    outputs: &Path,
    disk: &mut Disk,
) -> Result<(), String> {
    for (pattern, block_bytes, depth) in tests(plan) {
        let script = script(plan, pattern, block_bytes, depth);
        let printed = shell.run(&script, PATIENCE + Duration::from_millis(plan.time_ms) * 3)?;
        let name = format!(
            "fio-{}-{}-{}-q{depth}.json",
            plain(&shell.host.name),
            plain(&plan.directory),
            pattern.word()
        );
        keep(outputs, &name, &printed.stdout);
        if printed.status != 0 {
            return Err(refusal(printed.status, &printed.stderr, &plan.directory));
        }
        if let Some(mount) = printed.stdout.lines().find_map(|line| line.strip_prefix("@mount ")) {
            disk.mount = mount.trim().to_string();
        }
        let json = printed.stdout.find('{').map(|at| &printed.stdout[at..]).unwrap_or_default();
        disk.tests.push(parse(json, pattern, block_bytes, depth)?);
    }
    Ok(())
}

fn tests(plan: &DiskPlan) -> Vec<(Pattern, u64, u64)> {
    let mut all = vec![];
    for pattern in [Pattern::SequentialWrite, Pattern::SequentialRead] {
        all.extend(
            sequential_depths(&plan.depths).into_iter().map(|depth| (pattern, SEQUENTIAL_BYTES, depth)),
        );
    }
    for pattern in [Pattern::RandomRead, Pattern::RandomWrite] {
        all.extend(plan.depths.iter().map(|depth| (pattern, plan.block_bytes, *depth)));
    }
    all.push((Pattern::Sync, plan.block_bytes, 1));
    all
}

/// The job that measures, the one that times the final flush of writes, and its block.
const JOB: &str = "check";
const FLUSH_JOB: &str = "flush";
const FLUSH_BYTES: u64 = 4096;
/// Exit statuses of the script that are not fio's.
const NO_FIO: i32 = 90;
const NO_SPACE: i32 = 91;
const FOREIGN: i32 = 92;
const UNWRITABLE: i32 = 93;

/// Size, free space and mount point of a line of `df -Pk`: names of devices and mount points may hold spaces.
const DF_FIGURES: &str =
    r"s/^.* \([0-9][0-9]*\) \{1,\}[0-9][0-9]* \{1,\}\(-*[0-9][0-9]*\) \{1,\}[0-9]*% \{1,\}\(.*\)$/\1 \2 \3/";

fn refusal(status: i32, stderr: &str, directory: &str) -> String {
    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    match status {
        NO_FIO => "neither pgfathom nor fio is installed there; --copy-program copies pgfathom".to_string(),
        NO_SPACE => format!("{directory} has too little free space; --size takes a smaller file"),
        FOREIGN => {
            format!("{directory}/{} exists and is not of pgfathom check, or is in use", scratch::FOLDER)
        }
        UNWRITABLE => format!("cannot make {directory}/{}: {last}", scratch::FOLDER),
        status => format!("fio ended with {status}: {last}"),
    }
}

/// Removes an empty folder, and what a killed probe left: its marker names a process that is gone.
fn remove_leftover() -> String {
    let (folder, marker) = (scratch::FOLDER, format!("{}/{}", scratch::FOLDER, scratch::MARKER));
    format!(
        "rmdir {folder} 2>/dev/null; if [ -f {marker} ] && {{ read -r first; read -r boot pid start; }} <{marker} && [ \"$first\" = {} ]; then \
         [ \"$boot\" = \"$(cat /proc/sys/kernel/random/boot_id)\" ] && \
         [ \"$start\" = \"$(sed 's/.*) //' \"/proc/$pid/stat\" 2>/dev/null | cut -d' ' -f20)\" ] || \
         {{ rm -f {folder}/{} {folder}/{} {marker}; rmdir {folder} 2>/dev/null; }}; fi;",
        quoted(scratch::FIRST_LINE),
        scratch::DATA,
        scratch::COMMITS,
    )
}

/// The script of one test: it makes the folder with its marker, runs fio in it, and removes both at every end.
fn script(plan: &DiskPlan, pattern: Pattern, block_bytes: u64, depth: u64) -> String {
    let kind = match pattern {
        Pattern::SequentialWrite => "--rw=write",
        Pattern::SequentialRead => "--rw=read",
        Pattern::RandomWrite => "--rw=randwrite",
        Pattern::RandomRead => "--rw=randread",
        Pattern::Sync => "--rw=write --fdatasync=1",
    };
    // The script works in the directory: fio takes a colon in a path for the end of a name.
    let (directory, folder) = (quoted(&plan.directory), scratch::FOLDER);
    let needed_kb = plan.size_bytes >> 10;
    let reserve = (1.0 / RESERVE_SHARE) as u64;
    let before = format!(
        "cd {directory} || exit 1; command -v fio >/dev/null 2>&1 || exit {NO_FIO}; \
         set -- $(df -Pk . | tail -n 1 | sed '{DF_FIGURES}'); \
         [ \"$2\" -gt $(( {needed_kb} + $1 / {reserve} )) ] || exit {NO_SPACE}; shift 2; echo \"@mount $*\"; \
         {} \
         [ ! -e {folder} ] && [ ! -L {folder} ] || exit {FOREIGN}; mkdir -m 700 {folder} || exit {UNWRITABLE}; \
         {{ echo {}; echo \"$(cat /proc/sys/kernel/random/boot_id) $$ $(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)\"; }} >{folder}/{}; ",
        remove_leftover(),
        quoted(scratch::FIRST_LINE),
        scratch::MARKER,
    );
    // A stream of a sequential test has a part of the file of its own, as in our probe.
    let is_sequential = matches!(pattern, Pattern::SequentialWrite | Pattern::SequentialRead);
    let part = plan.size_bytes / depth.max(1) / block_bytes * block_bytes;
    let (size, parts) = match is_sequential && depth > 1 {
        true => (part, format!(" --offset_increment={part}")),
        // Commits go to as much of the file as a segment of WAL has.
        false if pattern == Pattern::Sync => (plan.size_bytes.min(COMMITS_BYTES), String::new()),
        false => (plan.size_bytes, String::new()),
    };
    // Threads that wait for their own operation each, as in our probe. The file is written before by a job of its own, in large blocks past the page
    // cache, as our probe does: fio's own layout goes through it, and random writes into such a file were slower by a third on a virtual disk.
    let file = format!("--filename={folder}/{} --direct=1 --ioengine=psync --thread", scratch::DATA);
    // The time of our probe's writes includes one flush at their end, and that of fio does not (its end_fsync flushes at each pass over the file): a last job
    // writes a block and times the flush, which is that of all writes before it. A second block follows, as fio does not flush after the last one.
    let flush = match pattern {
        Pattern::SequentialWrite | Pattern::RandomWrite => format!(
            " --name={FLUSH_JOB} --stonewall {file} --size={} --bs={FLUSH_BYTES} --rw=write --fdatasync=1 --overwrite=1 --create_on_open=1",
            2 * FLUSH_BYTES
        ),
        _ => String::new(),
    };
    let work = format!(
        "fio --name=fill {file} --size={} --bs={SEQUENTIAL_BYTES} --rw=write --fallocate=none --name={JOB} --stonewall {file} --size={size}{parts} \
         --bs={block_bytes} {kind} --numjobs={depth} --group_reporting --time_based --runtime={}ms --randrepeat=0 --overwrite=1 --create_on_open=1{flush} \
         --output-format=json",
        plan.size_bytes, plan.time_ms,
    );
    let clean = format!("rm -f {0}/{1} {0}/{2}; rmdir {0}", folder, scratch::DATA, scratch::MARKER);
    format!("{before}{}", watching(&work, &clean))
}

/// Reads fio's JSON.
fn parse(json: &str, pattern: Pattern, block_bytes: u64, depth: u64) -> Result<DiskTest, String> {
    let value: Value = serde_json::from_str(json)
        .map_err(|error| format!("the output of fio is not understood: {error}"))?;
    let jobs = value["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |name: &str| jobs.iter().find(|job| job["jobname"] == name).unwrap_or(&Value::Null);
    let job = named(JOB);
    let part = if matches!(pattern, Pattern::SequentialRead | Pattern::RandomRead) {
        &job["read"]
    } else {
        &job["write"]
    };
    let number = |value: &Value| value.as_f64().ok_or_else(|| "the output of fio lacks a figure".to_string());
    let mut latency_us = distribution(&part["clat_ns"]);
    let mut per_s = number(&part["iops"])?;
    if matches!(pattern, Pattern::SequentialWrite | Pattern::RandomWrite) {
        let flush = distribution(&named(FLUSH_JOB)["sync"]["lat_ns"]);
        if flush.count == 0 {
            return Err("fio timed no flush of the writes".to_string());
        }
        let flush_ms = flush.mean * NS_PER_US / NS_PER_MS;
        let runtime_ms = number(&part["runtime"])?;
        per_s *= runtime_ms / (runtime_ms + flush_ms).max(f64::MIN_POSITIVE);
    }
    if pattern == Pattern::Sync {
        // A commit is a write and its flush.
        let (write, sync) = (latency_us, distribution(&job["sync"]["lat_ns"]));
        latency_us = Distribution {
            count: write.count,
            min: write.min + sync.min,
            mean: write.mean + sync.mean,
            p50: write.p50 + sync.p50,
            p90: write.p90 + sync.p90,
            p99: write.p99 + sync.p99,
            p999: write.p999 + sync.p999,
            max: write.max + sync.max,
            buckets: vec![],
        };
        if latency_us.mean > 0.0 {
            per_s = per_s.min(1e6 / latency_us.mean);
        }
    }
    Ok(DiskTest {
        pattern,
        block_bytes,
        depth,
        bytes_per_s: per_s * block_bytes as f64,
        per_s,
        latency_us,
        member_await_ms: vec![],
    })
}

fn distribution(value: &Value) -> Distribution {
    let us = |value: &Value| value.as_f64().unwrap_or(0.0) / NS_PER_US;
    let percentile = |name: &str| us(&value["percentile"][name]);
    Distribution {
        count: value["N"].as_u64().unwrap_or(0),
        min: us(&value["min"]),
        mean: us(&value["mean"]),
        p50: percentile("50.000000"),
        p90: percentile("90.000000"),
        p99: percentile("99.000000"),
        p999: percentile("99.900000"),
        max: us(&value["max"]),
        buckets: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"fio version":"fio-3.33","jobs":[{"jobname":"fill","write":{"iops":1.0,"clat_ns":{"N":1}}},
        {"jobname":"check","read":{"iops":0.0,"bw_bytes":0,"clat_ns":{"N":0}},
        "write":{"iops":4000.5,"bw_bytes":32772096,"runtime":2000,"clat_ns":{"N":8001,"min":20000,"max":900000,"mean":50000.0,
        "percentile":{"50.000000":48000,"90.000000":60000,"99.000000":90000,"99.900000":300000}}},
        "sync":{"total_ios":8000,"lat_ns":{"N":8000,"min":100000,"max":5000000,"mean":200000.0,
        "percentile":{"50.000000":190000,"90.000000":250000,"99.000000":600000,"99.900000":2000000}}}},
        {"jobname":"flush","write":{"iops":1.0,"clat_ns":{"N":1}},"sync":{"lat_ns":{"N":1,"mean":500000000.0}}}]}"#;

    #[test]
    fn the_output_of_fio_is_read() {
        let sync = parse(OUTPUT, Pattern::Sync, 8192, 1).expect("fio's output");
        assert_eq!((sync.latency_us.p50, sync.latency_us.p99), (238.0, 690.0));
        assert!((sync.per_s - 4000.0).abs() < 0.1, "{sync:?}");
        let write = parse(OUTPUT, Pattern::RandomWrite, 8192, 1).expect("fio's output");
        // 2 s of writes and 0.5 s of their flush.
        assert!((write.per_s - 4000.5 * 0.8).abs() < 0.1, "{write:?}");
        assert!((write.bytes_per_s - write.per_s * 8192.0).abs() < 1.0, "{write:?}");
        assert_eq!(write.latency_us.count, 8001);
        // A flush that did not happen is not one that took no time.
        let without = OUTPUT.replace("\"N\":1,\"mean\":500000000.0", "\"N\":0,\"mean\":0.0");
        assert!(parse(&without, Pattern::RandomWrite, 8192, 1).is_err());
        assert!(parse(&OUTPUT.replace("flush", "other"), Pattern::RandomWrite, 8192, 1).is_err());
        assert!(parse("{}", Pattern::Sync, 8192, 1).is_err());
        assert!(parse("fio: failed", Pattern::Sync, 8192, 1).is_err());
    }

    #[test]
    fn a_line_of_df_is_read_whatever_its_names_hold() {
        let read = |line: &str| {
            let script = format!("printf '%s\\n' {} | sed '{DF_FIGURES}'", quoted(line));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            String::from_utf8_lossy(&output.stdout).trim_end().to_string()
        };
        assert_eq!(read("/dev/vda 263112772  60000000 192000000      24% /"), "263112772 192000000 /");
        assert_eq!(read("//nas/my 1 2 disk  1000 600 400  60% /mnt/my 5% disk"), "1000 400 /mnt/my 5% disk");
        // Space that is reserved for root can be in use.
        assert_eq!(read("/dev/sdb1 1000 1001 -1 101% /full"), "1000 -1 /full");
    }

    #[test]
    fn refusals_have_their_reason() {
        assert!(refusal(NO_FIO, "", "/d").contains("--copy-program"));
        assert!(refusal(NO_SPACE, "", "/d").contains("--size"));
        let denied = "mkdir: cannot create directory 'pgfathom-check': Permission denied";
        assert!(refusal(UNWRITABLE, denied, "/d").ends_with("Permission denied"));
        assert_eq!(refusal(1, "a\nfio: bad option\n\n", "/d"), "fio ended with 1: fio: bad option");
    }
}
