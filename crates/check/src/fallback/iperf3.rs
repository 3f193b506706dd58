//! The network measured by iperf3: bandwidth, retransmits, and the round trip that TCP sees under load.

use super::shell::{Shell, watching};
use super::{keep, plain};
use crate::link::quoted;
use record::check::{Distribution, Pair};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The first port of a server, and how many there are to choose from.
const PORTS: (u16, u16) = (20_000, 10_000);
/// The time beside the test's own.
const PATIENCE: Duration = Duration::from_secs(60);
/// The exit status of a script without iperf3.
const NO_IPERF3: i32 = 90;

/// Why there is no figure.
#[derive(Debug)]
pub(super) enum Refused {
    /// One of the hosts has no iperf3.
    Absent,
    /// It failed.
    Failed(String),
}

/// Runs a server for one test, and the client.
pub(super) fn measure(
    from: &Shell<'_>,
    to: &Shell<'_>,
    time: Duration,
    outputs: &Path,
) -> Result<Pair, Refused> {
    const CHECK: &str = "command -v iperf3 >/dev/null 2>&1 || exit 90; ";
    for shell in [from, to] {
        let found = shell.run(CHECK, PATIENCE).map_err(Refused::Failed)?;
        match found.status {
            0 => {}
            NO_IPERF3 => return Err(Refused::Absent),
            status => {
                return Err(Refused::Failed(format!("{}: a shell ended with {status}", shell.host.name)));
            }
        }
    }
    let mut random = crate::probe::disk::Random::new(record::clock::wall_us());
    let port = PORTS.0 + u16::try_from(random.next() % u64::from(PORTS.1)).unwrap_or(0);
    let seconds = time.as_secs().max(1);
    let server = watching(&format!("iperf3 -s -1 -p {port}"), ":");
    // The client waits for the server by trying again; with -J iperf3 ends with 0 also after an error.
    let client = watching(
        &format!(
            "sh -c 'for i in $(seq 60); do out=$(iperf3 -J -c {} -p {port} -t {seconds}); \
             case $out in *\\\"error\\\"*) sleep 0.5 ;; *) break ;; esac; done; printf \"%s\\n\" \"$out\"'",
            quoted(&to.host.address).replace('\'', "\"")
        ),
        ":",
    );
    let patience = PATIENCE + time * 2;
    // The server has nothing to wait for once the client has ended, well or not.
    let has_ended = AtomicBool::new(false);
    let serving = Shell { stop: &has_ended, ..*to };
    let printed = std::thread::scope(|scope| {
        let server = scope.spawn(|| serving.run(&server, patience));
        let printed = from.run(&client, patience);
        has_ended.store(true, Ordering::Relaxed);
        let _ = server.join();
        printed
    });
    let printed = printed.map_err(Refused::Failed)?;
    keep(
        outputs,
        &format!("iperf3-{}-{}.json", plain(&from.host.name), plain(&to.host.name)),
        &printed.stdout,
    );
    parse(&printed.stdout).map_err(Refused::Failed)
}

/// Reads iperf3's JSON.
fn parse(json: &str) -> Result<Pair, String> {
    let value: Value = serde_json::from_str(json)
        .map_err(|error| format!("the output of iperf3 is not understood: {error}"))?;
    if let Some(error) = value["error"].as_str() {
        return Err(format!("iperf3: {error}"));
    }
    let bits = value["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.ok_or_else(|| "the output of iperf3 lacks the rate".to_string())?;
    let sender = &value["end"]["streams"][0]["sender"];
    let us = |name: &str| sender[name].as_f64().unwrap_or(0.0);
    let round_trip_us = Distribution {
        count: u64::from(us("mean_rtt") > 0.0),
        min: us("min_rtt"),
        mean: us("mean_rtt"),
        p50: us("mean_rtt"),
        p90: us("max_rtt"),
        p99: us("max_rtt"),
        p999: us("max_rtt"),
        max: us("max_rtt"),
        buckets: vec![],
    };
    let bytes = value["end"]["sum_sent"]["bytes"].as_f64().unwrap_or(0.0);
    let mss = value["start"]["tcp_mss_default"].as_f64().filter(|mss| *mss > 0.0).unwrap_or(1448.0);
    Ok(Pair {
        tool: "iperf3".to_string(),
        bytes_per_s: bits / 8.0,
        retransmits: value["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        segments: (bytes / mss) as u64,
        round_trip_us,
        ..Pair::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_iperf3_is_read() {
        let text = r#"{"start":{"tcp_mss_default":1448},"end":{"streams":[{"sender":{"max_rtt":900,"min_rtt":100,"mean_rtt":400}}],
            "sum_sent":{"bytes":1448000,"retransmits":7},"sum_received":{"bits_per_second":8e9}}}"#;
        let pair = parse(text).expect("iperf3's output");
        assert_eq!((pair.bytes_per_s, pair.retransmits, pair.segments), (1e9, 7, 1000));
        assert_eq!(pair.round_trip_us.min, 100.0);
        let error = parse(r#"{"error":"unable to connect"}"#).expect_err("an error");
        assert_eq!(error, "iperf3: unable to connect");
    }
}
