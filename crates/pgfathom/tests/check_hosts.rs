//! `check` on several hosts: network namespaces with an ssh server, a disk and a network card each. One of them has a slow card and another
//! mount option; what the check names, and that nothing stays behind.

use crate::support;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Ended, Folder};
use testing::{Lack, needs, skip};

/// Makes the hosts `10.77.0.1` to `10.77.0.N`, runs the commands of the test, and ends: its namespaces take everything with them.
const SETUP: &str = include_str!("support/hosts.sh");

/// What the tests need and may lack.
fn lack() -> Option<Lack> {
    let programs = ["sshd", "ssh", "ssh-keygen", "unshare", "nsenter", "ip", "tc", "mkfs.ext4"];
    let missing = programs.into_iter().find_map(|name| needs::program(name).err());
    missing.or_else(|| needs::networks().err()).or_else(|| needs::loop_devices().err())
}

/// Runs shell commands beside so many hosts. `pgfathom` is the command, `hosts.txt` lists the hosts, `on N COMMAND` runs something on one.
fn beside_hosts(folder: &Folder, count: u32, commands: &str) -> Ended {
    folder.write("setup.sh", SETUP).write("commands.sh", commands);
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "setup.sh"])
        .arg(count.to_string())
        .arg(env!("CARGO_BIN_EXE_pgfathom"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("unshare starts");
    output.into()
}

fn read(folder: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

/// The items of a check: check, host, subject, verdict, claim.
fn items(checks: &Value) -> Vec<[String; 5]> {
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_string();
    let of = |item: &Value| ["check", "host", "subject", "verdict", "claim"].map(|name| text(item, name));
    checks["items"].as_array().expect("items").iter().map(of).collect()
}

fn found<'a>(items: &'a [[String; 5]], check: &str, host: &str) -> Vec<&'a [String; 5]> {
    items.iter().filter(|[is, of, ..]| is == check && of == host).collect()
}

const MEASURE: &str = "--disk $PWD/data --size 32MiB --probe-time 400ms --depths 1,4";

#[test]
fn the_host_that_differs_is_named_with_the_reason() {
    if let Some(lack) = lack() {
        return skip(&lack);
    }
    let folder = Folder::new();
    let commands = format!(
        "remount 3 stripe=1280\nslow_network 3\n\
         pgfathom check --hosts hosts.txt --ssh 10.77.0.99 --copy-program {MEASURE} -o checked; echo \"exit $?\"\nleftovers\n"
    );
    let ended = beside_hosts(&folder, 3, &commands);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("exit 6\n"), "{output}");
    assert!(ended.stdout.contains("leftovers: none\n"), "{output}");
    let checks = read(folder.path(), "checked/check.json");
    let items = items(&checks);
    // An unreachable host is a failed item, and the others are checked.
    let lost = found(&items, "host.reached", "10.77.0.99");
    assert_eq!((lost.len(), lost[0][3].as_str()), (1, "fail"), "{output}");
    for host in ["10.77.0.1", "10.77.0.2", "10.77.0.3"] {
        let reached = found(&items, "host.reached", host);
        assert!(reached[0][4].ends_with("was measured by a copied pgfathom"), "{reached:?} {output}");
        assert_eq!(found(&items, "disk.sync", host).len(), 1, "{output}");
        assert_eq!(found(&items, "clock.offset", host)[0][3], "pass", "{output}");
        assert_eq!(found(&items, "memory.read", host).len(), 1, "{output}");
    }
    // The mount option of the third host, by itself and by contrast.
    assert_eq!(found(&items, "mount.stripe", "10.77.0.3").len(), 1, "{output}");
    assert!(found(&items, "mount.stripe", "10.77.0.1").is_empty(), "{output}");
    let contrast = found(&items, "contrast.fact", "10.77.0.3");
    assert!(contrast.iter().any(|item| item[4].contains("stripe=1280")), "{contrast:?} {output}");
    // Its card: 50 Mbit/s in both directions, the others are not limited.
    let slow: Vec<_> = items
        .iter()
        .filter(|[check, _, _, verdict, _]| check == "network.bandwidth" && verdict == "warn")
        .collect();
    assert!(slow.iter().any(|item| item[1] == "10.77.0.3"), "{slow:?} {output}");
    let rate = |from: &str, to: &str| {
        let pairs = checks["pairs"].as_array().expect("pairs");
        let pair = pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to).expect("every pair");
        pair["bytes_per_s"].as_f64().expect("a rate")
    };
    let (slow, fast) = (rate("10.77.0.3", "10.77.0.1"), rate("10.77.0.1", "10.77.0.2"));
    assert!(slow < 8e6 && fast > 3.0 * slow, "{slow} {fast} {output}");
    assert!(ended.stdout.contains("10.77.0.99 was not checked"), "{output}");
    let page = std::fs::read_to_string(folder.path().join("checked/report.html")).expect("a page");
    assert!(page.contains("slow3") && page.contains("stripe=1280") && page.contains("class=\"spread\""));
}

#[test]
fn the_host_with_the_slow_disk_is_named_with_its_rate() {
    if let Some(lack) = lack().or_else(|| needs::slow_disks().err()) {
        return skip(&lack);
    }
    let folder = Folder::new();
    let commands = format!(
        "slow_disk 2\npgfathom check --hosts hosts.txt --copy-program {MEASURE} --skip network,memory,processor -o checked; echo \"exit $?\"\n\
         leftovers\nfree_disk\n"
    );
    let ended = beside_hosts(&folder, 2, &commands);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("leftovers: none\n"), "{output}");
    let checks = read(folder.path(), "checked/check.json");
    let items = items(&checks);
    for what in ["sequential write", "sequential read"] {
        let named = |host: &str| {
            found(&items, "contrast.figure", host)
                .iter()
                .any(|item| item[2].contains(what) && item[3] == "warn")
        };
        assert!(named("10.77.0.2") && !named("10.77.0.1"), "{what}: {items:#?} {output}");
    }
    let rate = |host: &str| {
        let disks = checks["disks"].as_array().expect("disks");
        let disk = disks.iter().find(|disk| disk["host"] == host).expect("its disk");
        disk["tests"][0]["bytes_per_s"].as_f64().expect("a rate")
    };
    assert!(rate("10.77.0.2") < 10e6, "{} {output}", rate("10.77.0.2"));
}

#[test]
fn an_interrupt_and_a_crash_leave_nothing_on_the_hosts() {
    if let Some(lack) = lack() {
        return skip(&lack);
    }
    let folder = Folder::new();
    let long = "--disk $PWD/data --size 32MiB --probe-time 60 --skip memory,processor,network";
    let begin = |name: &str| {
        format!(
            "(in_place check --hosts hosts.txt --copy-program {long} -o {name}) & check=$!\n\
             wait_for 'on 1 test -e data/pgfathom-check' && wait_for 'on 2 test -e data/pgfathom-check'\n"
        )
    };
    let commands = format!(
        "{}kill -INT $check; wait $check; echo \"exit $?\"\nleftovers\n{}kill -9 $check; wait $check 2>/dev/null; echo \"exit $?\"\n\
         wait_for '[ \"$(leftovers)\" = \"leftovers: none\" ]'\nleftovers\n",
        begin("interrupted"),
        begin("killed"),
    );
    let ended = beside_hosts(&folder, 2, &commands);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    let lines: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|line| line.starts_with("exit") || line.starts_with("leftovers"))
        .collect();
    assert_eq!(lines, ["exit 130", "leftovers: none", "exit 137", "leftovers: none"], "{output}");
}

#[test]
fn login_shells_that_are_no_posix_shells_are_hosts_like_any_other() {
    let needed = ["tcsh", "fish", "fio"].into_iter().find_map(|name| needs::program(name).err());
    if let Some(lack) = lack().or(needed) {
        return skip(&lack);
    }
    let folder = Folder::new();
    let commands = format!(
        "login_shell 1 \"$(command -v tcsh)\"; login_shell 2 \"$(command -v fish)\"\n\
         for n in 1 2; do ./own-ssh 10.77.0.$n 'echo login $version'; done\n\
         pgfathom check --hosts hosts.txt --copy-program {MEASURE} --skip network,memory,processor -o copied; echo \"exit $?\"\n\
         pgfathom check --hosts hosts.txt --program \"/no where/pgfathom's\" {MEASURE} --skip network -o bare; echo \"exit $?\"\nleftovers\n"
    );
    let ended = beside_hosts(&folder, 2, &commands);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("leftovers: none\n"), "{output}");
    // That these are the shells: each has a variable `version` of its own.
    assert!(ended.stdout.contains("login tcsh ") && ended.stdout.contains("login 3."), "{output}");
    for (name, verdict, tool) in [("copied", "pass", "pgfathom"), ("bare", "warn", "fio")] {
        let checks = read(folder.path(), &format!("{name}/check.json"));
        let items = items(&checks);
        for host in ["10.77.0.1", "10.77.0.2"] {
            assert_eq!(found(&items, "host.reached", host)[0][3], verdict, "{name} {output}");
            assert_eq!(found(&items, "kernel.release", host).len(), 1, "{name} {output}");
            let disks = checks["disks"].as_array().expect("disks");
            let disk = disks.iter().find(|disk| disk["host"] == host).expect("its disk");
            assert_eq!(
                (disk["tool"].as_str(), disk["refused"].as_str()),
                (Some(tool), None),
                "{name} {output}"
            );
        }
    }
}

#[test]
fn without_the_program_kernel_files_are_read_and_other_tools_measure() {
    if let Some(lack) =
        lack().or_else(|| needs::program("fio").err()).or_else(|| needs::program("iperf3").err())
    {
        return skip(&lack);
    }
    let folder = Folder::new();
    let commands = format!(
        "pgfathom check --hosts hosts.txt --program /nowhere/pgfathom {MEASURE} -o checked; echo \"exit $?\"\nleftovers\n"
    );
    let ended = beside_hosts(&folder, 2, &commands);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("leftovers: none\n"), "{output}");
    let checks = read(folder.path(), "checked/check.json");
    let items = items(&checks);
    for host in ["10.77.0.1", "10.77.0.2"] {
        assert_eq!(found(&items, "host.reached", host)[0][3], "warn", "{output}");
        assert_eq!(found(&items, "disk.sync", host).len(), 1, "{output}");
        assert_eq!(found(&items, "kernel.release", host).len(), 1, "{output}");
        let kept = format!("checked/tools/fio-{host}-");
        let folder = folder.path().join("checked/tools");
        let names: Vec<_> =
            std::fs::read_dir(folder).expect("outputs").flatten().map(|one| one.file_name()).collect();
        assert!(
            names.iter().any(|name| kept.ends_with(&name.to_string_lossy()[..kept.len() - 14])),
            "{names:?}"
        );
    }
    let pairs = checks["pairs"].as_array().expect("pairs");
    assert!(pairs.len() == 2 && pairs.iter().all(|pair| pair["tool"] == "iperf3"), "{pairs:?} {output}");
    assert!(pairs.iter().all(|pair| pair["bytes_per_s"].as_f64() > Some(1e6)), "{pairs:?} {output}");
}
