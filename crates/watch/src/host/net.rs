//! The network: interfaces, their queues, and TCP's retransmissions.

use super::files::{Files, growth, number, word};
use std::collections::BTreeMap;

/// Counters of one interface since it came up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Errors while receiving, those of framing and overruns included by the kernel.
    pub rx_errors: u64,
    /// Packets dropped while receiving.
    pub rx_drops: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Errors while sending.
    pub tx_errors: u64,
    /// Packets dropped while sending.
    pub tx_drops: u64,
}

/// Reads `/proc/net/dev`. Long counters may stick to the colon (`eth0:123`).
pub(crate) fn interfaces(text: &str) -> BTreeMap<String, Interface> {
    const COLUMNS: usize = 16;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.rsplit_once(':') else { continue };
        let columns: Vec<u64> = rest.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        if columns.len() < COLUMNS {
            continue;
        }
        found.insert(
            name.trim().to_string(),
            Interface {
                rx_bytes: columns[0],
                rx_packets: columns[1],
                rx_errors: columns[2],
                rx_drops: columns[3],
                tx_bytes: columns[8],
                tx_packets: columns[9],
                tx_errors: columns[10],
                tx_drops: columns[11],
            },
        );
    }
    found
}

/// Growth of every counter; one that was reset counts as zero.
pub fn traffic(before: &Interface, now: &Interface) -> Interface {
    let of = |field: fn(&Interface) -> u64| growth(field(before), field(now)).unwrap_or(0);
    Interface {
        rx_bytes: of(|i| i.rx_bytes),
        rx_packets: of(|i| i.rx_packets),
        rx_errors: of(|i| i.rx_errors),
        rx_drops: of(|i| i.rx_drops),
        tx_bytes: of(|i| i.tx_bytes),
        tx_packets: of(|i| i.tx_packets),
        tx_errors: of(|i| i.tx_errors),
        tx_drops: of(|i| i.tx_drops),
    }
}

/// A named counter of `/proc/net/snmp` or `/proc/net/netstat`: pairs of lines, names above numbers.
pub(crate) fn protocol_counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines =
        text.lines().filter_map(|line| line.strip_prefix(protocol).and_then(|rest| rest.strip_prefix(':')));
    let at = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// The properties of an interface, as far as the kernel reports them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Card {
    /// Receive queues.
    pub rx_queues: u64,
    /// Send queues.
    pub tx_queues: u64,
    /// Driver of the device; `None` for those without (loopback, bridges).
    pub driver: Option<String>,
    /// Largest packet.
    pub mtu: Option<u64>,
    /// Speed of the link, where there is one.
    pub speed_mbit_s: Option<u64>,
    /// Whether receive packet steering is on for some queue: then one hardware queue is no bottleneck by itself.
    pub is_steered: bool,
}

/// Reads `/sys/class/net/NAME`.
pub fn card(files: &mut dyn Files, name: &str) -> Card {
    let folder = format!("/sys/class/net/{name}");
    let queues = files.entries(&format!("{folder}/queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count() as u64;
    let driver = files
        .link(&format!("{folder}/device/driver"))
        .and_then(|target| target.rsplit('/').next().map(str::to_string));
    let is_steered = queues.iter().any(|queue| {
        word(files, &format!("{folder}/queues/{queue}/rps_cpus"))
            .is_some_and(|mask| mask.chars().any(|c| !matches!(c, '0' | ',')))
    });
    Card {
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        driver,
        mtu: number(files, &format!("{folder}/mtu")),
        speed_mbit_s: number(files, &format!("{folder}/speed")),
        is_steered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::Shipped;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n\
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
            lo: 100 10 0 0 0 0 0 0 100 10 0 0 0 0 0 0\n\
          eth0:9999999999 20 1 2 0 0 0 0 500 30 3 4 0 0 0 0\n  torn: 1 2\n";

    #[test]
    fn interfaces_are_read_and_compared() {
        let found = interfaces(DEV);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["eth0", "lo"]);
        let eth0 = found["eth0"];
        assert_eq!((eth0.rx_bytes, eth0.rx_drops, eth0.tx_errors, eth0.tx_drops), (9_999_999_999, 2, 3, 4));
        let later = Interface { rx_bytes: 9_999_999_999 + 7, tx_drops: 1, ..eth0 };
        assert_eq!(traffic(&eth0, &later), Interface { rx_bytes: 7, ..Interface::default() });
    }

    #[test]
    fn protocol_counters_are_found_by_name() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 5000 42\nTcpExt: RetransSegs\nTcpExt: 9\n";
        assert_eq!(protocol_counter(snmp, "Tcp", "RetransSegs"), Some(42));
        assert_eq!(protocol_counter(snmp, "Tcp", "OutSegs"), Some(5000));
        assert_eq!(protocol_counter(snmp, "Udp", "InDatagrams"), None);
        assert_eq!(protocol_counter("Tcp: RetransSegs\n", "Tcp", "RetransSegs"), None);
    }

    #[test]
    fn a_card_with_one_queue() {
        let mut files = Shipped::default();
        files.put("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00,00000000\n".into());
        files.put("/sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n".into());
        files.put("/sys/class/net/eth0/mtu", "1500\n".into());
        files.put("/sys/class/net/eth0/speed", "-1\n".into());
        files.put_link("/sys/class/net/eth0/device/driver", "../../bus/virtio/drivers/virtio_net");
        let card = card(&mut files, "eth0");
        let expected = Card {
            rx_queues: 1,
            tx_queues: 1,
            driver: Some("virtio_net".into()),
            mtu: Some(1500),
            speed_mbit_s: None,
            is_steered: false,
        };
        assert_eq!(card, expected);
        files.put("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00,0000000f\n".into());
        assert!(super::card(&mut files, "eth0").is_steered);
    }
}
