//! The network: distance, loss, and a card with one queue.

use crate::ground::{Ground, by_rule, explain, silent};
use crate::island::{Own, alone, run};
use crate::relay::Relay;
use crate::support::pgfathom;
use crate::sys;
use lab::throwaway::Options;
use postgres::Client;
use rustix::thread::{CpuSet, LinkNameSpaceType};
use serde_json::Value;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testing::needs;

/// The server's address, and its client's.
const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";
/// Everybody may come in: nobody else is in this network.
const HBA: &str = "local all all trust\nhost all all all trust\n";

/// Looks in 8 s: the rule about queues requests 5 s.
const LOOKS: usize = 17;

/// A machine of its own as far as the network goes: a namespace that lives as long as this value.
struct Machine {
    holder: Child,
}

impl Machine {
    fn new() -> Result<Machine, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        sys::end_with_us(&mut command);
        let machine = Machine { holder: command.spawn().map_err(|error| format!("unshare: {error}"))? };
        let begun = Instant::now();
        let ours = fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
        while fs::read_link(machine.namespace()).map_err(|error| error.to_string())? == ours {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("a network namespace was not made".to_string());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(machine)
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// `ip` or `tc` on that machine.
    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        run("nsenter", &[&format!("--net={}", self.namespace())], arguments).map(drop)
    }

    /// Takes a card of ours away.
    fn take(&self, card: &str) -> Result<(), String> {
        run("ip", &["link", "set", card, "netns", &self.holder.id().to_string()], &[])?;
        self.run(&["ip", "link", "set", card, "up"])
    }

    fn name(&self, card: &str, address: &str) -> Result<(), String> {
        self.run(&["ip", "addr", "add", &format!("{address}/24"), "dev", card])
    }

    /// Sessions from there that repeat a statement; on processor 0 alone, where the packets that they send arrive then, too, or wherever.
    fn sessions(&self, count: usize, statement: &str, port: u16, on_one: bool) -> Sessions {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let (stop, statement) = (Arc::clone(&stop), statement.to_string());
            let namespace = File::open(self.namespace()).expect("the namespace is there");
            thread::spawn(move || {
                rustix::thread::move_into_link_name_space(
                    namespace.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )
                .expect("we are root");
                if on_one {
                    let mut first = CpuSet::new();
                    first.set(0);
                    rustix::thread::sched_setaffinity(None, &first).expect("there is a processor 0");
                    // What else the machine does must not keep the packets from coming.
                    let _ = rustix::process::setpriority_process(None, -19);
                }
                let words = format!("host={NEAR} port={port} user=postgres dbname=postgres");
                let mut client = Client::connect(&words).expect("the server is at the other end");
                while !stop.load(Ordering::Relaxed) {
                    client.batch_execute(&statement).expect("the network carries it");
                }
            })
        });
        Sessions { threads: threads.collect(), stop }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Sessions of another machine.
struct Sessions {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        assert!(failed == 0 || thread::panicking(), "{failed} sessions of the other machine have failed");
    }
}

/// A cable between two cards with so many queues each way. Both are ours at first.
fn cable(one: &str, other: &str, queues: &str) -> Result<(), String> {
    let queues = ["numrxqueues", queues, "numtxqueues", queues];
    let mut arguments = vec!["link", "add", one];
    arguments.extend(queues);
    arguments.extend(["type", "veth", "peer", "name", other]);
    arguments.extend(queues);
    run("ip", &arguments, &[]).map(drop)
}

/// The server's end of the cable.
fn name_near() -> Result<(), String> {
    run("ip", &["addr", "add", &format!("{NEAR}/24"), "dev", "near"], &[])?;
    run("ip", &["link", "set", "near", "up"], &[]).map(drop)
}

/// A server that listens to the network.
fn ground() -> Ground {
    let options = Options { hba: Some(HBA.to_string()), ..Options::default() };
    // It waits for no card: the cable is changed under it.
    Ground::with(&[("listen_addresses", "0.0.0.0")], options)
}

#[test]
#[ignore = "on a busy machine TCP believes packets lost that only wait, and sends them again: no control"]
fn a_switch_on_the_way_drops_packets() {
    alone(Own::MountsAndNetwork, &[], &["NET-04"], |_| {
        let (far, switch) = (Machine::new()?, Machine::new()?);
        cable("near", "left", "1")?;
        cable("far", "right", "1")?;
        far.take("far")?;
        far.name("far", FAR)?;
        switch.run(&["ip", "link", "add", "bridge", "type", "bridge"])?;
        switch.run(&["ip", "link", "set", "bridge", "up"])?;
        for card in ["left", "right"] {
            switch.take(card)?;
            switch.run(&["ip", "link", "set", card, "master", "bridge"])?;
        }
        name_near()?;
        let ground = ground();
        let _load = far.sessions(2, "SELECT repeat('x', 500000)", ground.cluster.port(), false);
        ground.watch("healthy").is_silent(&["NET-04"]);
        let queue = [
            "qdisc", "add", "dev", "right", "root", "tbf", "rate", "50mbit", "burst", "20kb", "limit", "60kb",
        ];
        switch.run(&[&["tc"], &queue[..]].concat())?;
        let fired = ground.watch("lossy").until(&["NET-04"]);
        let evidence = fired["NET-04"]["evidence"].to_string();
        assert!(evidence.contains("on the path or at the peer"), "{evidence}");
        Ok(())
    });
}

/// Makes each packet that arrives at a card expensive: it is compared with so many rules of a firewall, of which none fits.
fn firewall(card: &str, rules: usize) -> Result<(), String> {
    run("tc", &["qdisc", "add", "dev", card, "ingress"], &[])?;
    let rule = |number: usize| {
        let (high, low) = (number / 250, number % 250);
        format!(
            "filter add dev {card} parent ffff: protocol ip prio 1 u32 match ip src 10.99.{high}.{low}/32 classid 1:1\n"
        )
    };
    let text: String = (0..rules).map(rule).collect();
    let path = std::env::temp_dir().join(format!("pgfathom-drill-{}.tc", std::process::id()));
    fs::write(&path, text).map_err(|error| error.to_string())?;
    let done = run("tc", &["-batch"], &[&path.to_string_lossy()]);
    let _ = fs::remove_file(&path);
    done.map(drop)
}

/// The processor of a veth's packets is the sender's, so the sessions of the other machine run on one: then it is as with a card whose one queue
/// interrupts one processor.
#[test]
#[ignore = "half a minute: a processor must be busy with packets for 5 s, and in both controls not"]
fn all_packets_go_through_one_queue() {
    // A machine with one processor wants no second queue.
    alone(Own::MountsAndNetwork, &[|| needs::processors(2)], &["NET-01"], |_| {
        let ground = ground();
        let port = ground.cluster.port();
        let far = Machine::new()?;
        // Much to receive, and in packets of the size that a wire carries.
        let bulk = format!("SELECT length('{}')", "x".repeat(100_000));
        let connect = |queues: &str| {
            cable("near", "far", queues)?;
            far.take("far")?;
            far.run(&["ip", "link", "set", "far", "gso_max_segs", "1"])?;
            far.name("far", FAR)?;
            name_near()
        };
        // Expensive packets, and queues enough.
        connect("4")?;
        firewall("near", 15_000)?;
        {
            let _load = far.sessions(4, &bulk, port, true);
            ground.watch("queues").is_silent_for(LOOKS, &["NET-01"]);
        }
        run("ip", &["link", "del", "near"], &[])?;
        // One queue, and packets that cost what packets cost.
        connect("1")?;
        {
            let _load = far.sessions(4, &bulk, port, true);
            ground.watch("cheap").is_silent_for(LOOKS, &["NET-01"]);
        }
        firewall("near", 15_000)?;
        let _load = far.sessions(4, &bulk, port, true);
        let fired = ground.watch("queue").until(&["NET-01"]);
        let claim = fired["NET-01"]["claim"].as_str().unwrap_or("");
        assert!(claim.contains("near go through 1 queue"), "{claim}");
        Ok(())
    });
}

/// A run of a few seconds against the server behind this relay.
fn drive(ground: &Ground, name: &str, delay: Duration) -> Value {
    let port = ground.cluster.port();
    let relay = Relay::start(ground.cluster.socket_dir(), port, delay);
    let mut command = pgfathom(ground.folder.path());
    command.args(["run", "-q", "-f", "trip.sql", "-c", "2", "-T", "6", "-o", name]);
    command.args(["-U", "postgres", "-d", "postgres", "-p", &port.to_string(), "-h"]).arg(relay.folder());
    let ended = command.output().expect("the command starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(relay.requests() > 0, "the run went another way");
    explain(ground.folder.path(), name)
}

#[test]
#[ignore = "it measures round trips: nothing else may keep the processors busy"]
fn the_server_is_far_away() {
    let ground = Ground::new(&[]);
    ground.folder.write("trip.sql", "SELECT 1;\n");
    silent(&drive(&ground, "near", Duration::ZERO), &["NET-03"]);
    let begun = Instant::now();
    let told = drive(&ground, "far", Duration::from_millis(20));
    let found = by_rule(&told, "findings").remove("NET-03");
    let found = found.unwrap_or_else(|| panic!("silent: {}", by_rule(&told, "checked")["NET-03"]));
    eprintln!("drill NET-03: fired after {:.1} s: {}", begun.elapsed().as_secs_f64(), found["claim"]);
}
