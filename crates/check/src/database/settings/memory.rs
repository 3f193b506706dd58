//! Settings of memory, judged against the host's memory.

use crate::database::draft::{Draft, pass, unknown, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use crate::database::setting::{Setting, size_within};
use record::check::{Area, Unit};
use record::number;

/// The documentation of shared_buffers: 25 % of memory is a reasonable start, more than 40 % rarely works better.
const BUFFERS_SHARE_GOOD: f64 = 0.25;
const BUFFERS_SHARE_MAX: f64 = 0.4;
/// Less than this share leaves the server with the kernel's cache alone.
const BUFFERS_SHARE_MIN: f64 = 0.1;
/// Below it the defaults fit.
const MEMORY_MIN_BYTES: f64 = 512.0 * 1024.0 * 1024.0;
/// Of memory, for what the planner may expect in caches.
const CACHE_SHARE_GOOD: f64 = 0.7;
const CACHE_SHARE_MIN: f64 = 0.25;
/// Memory that sessions may use beside shared_buffers.
const SESSIONS_SHARE: f64 = 0.9;
/// Settings are rounded to megabytes: a value this close below a limit is the limit.
const ROUNDING: f64 = 0.99;
/// The smallest work_mem of the server.
const WORK_MEM_MIN_BYTES: f64 = 64.0 * 1024.0;
/// An entry of a page table, and the page that it maps.
const ENTRY_BYTES: f64 = 8.0;
const PAGE_BYTES: f64 = 4096.0;
/// Page tables above this cost memory and TLB misses.
const TABLES_BYTES_MAX: f64 = 1024.0 * 1024.0 * 1024.0;
const TABLES_SHARE_MAX: f64 = 0.01;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.shared_buffers",
        area: Area::Settings,
        title: "shared_buffers against the host's memory",
        limits: "below 10 % or above 40 % of memory (documentation of shared_buffers: 25 %, rarely more than 40 %), which the checked servers of a \
            host share",
        units: &[Unit::Bytes],
        needs: &[Need::Memory],
        why: "too little makes the server read its hot pages from the kernel again and again; too much is cached twice and leaves no memory for sessions",
        judge: shared_buffers,
    },
    Check {
        id: "settings.effective_cache_size",
        area: Area::Settings,
        title: "effective_cache_size against shared_buffers and the host's memory",
        limits: "below shared_buffers, below 25 % of memory, or above all of it",
        units: &[Unit::Bytes],
        needs: &[],
        why: "the planner takes it for the caches of the server and the kernel together: too small a value makes index scans look expensive",
        judge: effective_cache_size,
    },
    Check {
        id: "settings.work_mem",
        area: Area::Settings,
        title: "work_mem times max_connections, and shared_buffers, against the host's memory",
        limits: "together above 90 % of memory; a statement may use work_mem several times",
        units: &[Unit::Bytes],
        needs: &[Need::Memory],
        why: "each sort and hash of each session may use work_mem: at full load the kernel would swap, or its OOM killer stop the server",
        judge: work_mem,
    },
    Check {
        id: "settings.huge_pages",
        area: Area::Settings,
        title: "huge pages for shared_buffers",
        limits: "without them, page tables of max_connections sessions above 1 GiB or 1 % of memory",
        units: &[Unit::Bytes],
        needs: &[],
        why: "each session maps shared_buffers with page tables of its own: memory and TLB misses grow with sessions times buffers",
        judge: huge_pages,
    },
];

/// The host's memory, in equal parts for the checked servers on it.
fn memory(node: &Node<'_>) -> f64 {
    let servers = if node.machine.is_limited { 1 } else { node.servers };
    node.machine.memory_bytes.map_or(0.0, |bytes| bytes as f64 / servers as f64)
}

/// What [`memory`] is, for a sentence.
fn memory_words(node: &Node<'_>) -> String {
    let bytes = number::bytes(node.machine.memory_bytes.unwrap_or(0) as f64);
    match node.servers {
        _ if node.machine.is_limited => format!("the {bytes} that its control group allows"),
        1 => format!("the host's {bytes}"),
        servers => format!("a share of the host's {bytes} for each of {servers} servers"),
    }
}

fn shared_buffers(node: &mut Node<'_>) -> Judged {
    let memory = memory(node);
    let setting = node.setting("shared_buffers")?;
    let bytes = setting.bytes().unwrap_or(0.0);
    let share = bytes / memory;
    let claim = format!("{}: {} of {}", setting.words(), number::percent(share), memory_words(node));
    if memory < MEMORY_MIN_BYTES
        || (BUFFERS_SHARE_MIN * ROUNDING..=BUFFERS_SHARE_MAX / ROUNDING).contains(&share)
    {
        return Ok(vec![pass(claim).figure(bytes, Unit::Bytes)]);
    }
    let draft = warn("shared_buffers", claim).figure(bytes, Unit::Bytes);
    let draft = if share < BUFFERS_SHARE_MIN {
        draft.at_least(memory * BUFFERS_SHARE_MIN)
    } else {
        draft.at_most(memory * BUFFERS_SHARE_MAX)
    };
    Ok(vec![
        draft
            .advice("begin with a quarter of memory")
            .run_all(setting.change(&size_within(memory * BUFFERS_SHARE_GOOD))),
    ])
}

fn effective_cache_size(node: &mut Node<'_>) -> Judged {
    let memory = memory(node);
    let whole = node.machine.memory_bytes.unwrap_or(0) as f64;
    let buffers = node.setting("shared_buffers")?.bytes().unwrap_or(0.0);
    let setting = node.setting("effective_cache_size")?;
    let bytes = setting.bytes().unwrap_or(0.0);
    let knows = memory >= MEMORY_MIN_BYTES;
    let good = if knows { (memory * CACHE_SHARE_GOOD).max(buffers) } else { buffers * 2.0 };
    let problem = if bytes < buffers {
        Some((format!("less than shared_buffers ({})", number::bytes(buffers)), true, buffers))
    } else if knows && bytes > whole {
        Some((format!("more than the server's memory ({})", number::bytes(whole)), false, whole))
    } else if knows && bytes < memory * CACHE_SHARE_MIN * ROUNDING {
        Some((
            format!("{} of {}", number::percent(bytes / memory), memory_words(node)),
            true,
            memory * CACHE_SHARE_MIN,
        ))
    } else {
        None
    };
    let Some((problem, is_low, limit)) = problem else {
        return Ok(vec![if knows {
            pass(setting.words()).figure(bytes, Unit::Bytes)
        } else {
            unknown(
                format!("{}; it is not below shared_buffers", setting.words()),
                "the memory of the host is not known: check its host, too",
            )
        }]);
    };
    let draft =
        warn("effective_cache_size", format!("{}: {problem}", setting.words())).figure(bytes, Unit::Bytes);
    let draft = if is_low { draft.at_least(limit) } else { draft.at_most(limit) };
    Ok(vec![
        draft
            .advice("about 70 % of memory, if the server has the host for itself; nothing is allocated")
            .run_all(setting.change(&size_within(good))),
    ])
}

fn work_mem(node: &mut Node<'_>) -> Judged {
    let memory = memory(node);
    let buffers = node.setting("shared_buffers")?.bytes().unwrap_or(0.0);
    let connections = node.setting("max_connections")?.number().unwrap_or(0.0);
    let setting = node.setting("work_mem")?;
    let bytes = setting.bytes().unwrap_or(0.0);
    let needed = buffers + bytes * connections;
    let most = memory * SESSIONS_SHARE;
    let claim = format!(
        "{}, max_connections is {connections}: with shared_buffers up to {} of {}",
        setting.words(),
        number::bytes(needed),
        memory_words(node)
    );
    if needed <= most {
        return Ok(vec![pass(claim).figure(needed, Unit::Bytes).at_most(most)]);
    }
    let fitting = ((most - buffers) / connections.max(1.0)).floor();
    let draft = warn("work_mem", claim).figure(needed, Unit::Bytes).at_most(most);
    Ok(vec![if fitting < WORK_MEM_MIN_BYTES {
        draft.advice("lower max_connections or shared_buffers first: no work_mem fits beside them")
    } else {
        let value = format!("{:.0}kB", (fitting / 1024.0).floor());
        draft.advice("lower it, or lower max_connections behind a pooler; give single reports more with SET LOCAL work_mem").run_all(setting.change(&value))
    }])
}

fn huge_pages(node: &mut Node<'_>) -> Judged {
    let buffers = node.setting("shared_buffers")?.bytes().unwrap_or(0.0);
    let connections = node.setting("max_connections")?.number().unwrap_or(0.0);
    let setting = node.setting("huge_pages")?;
    let status = node.setting("huge_pages_status").ok().map(|status| status.value.clone());
    let tables = connections * buffers / PAGE_BYTES * ENTRY_BYTES;
    let most = node
        .machine
        .memory_bytes
        .map_or(TABLES_BYTES_MAX, |bytes| TABLES_BYTES_MAX.min(bytes as f64 * TABLES_SHARE_MAX));
    let claim = format!(
        "{}: without huge pages {connections} sessions need up to {} of page tables",
        setting.words(),
        number::bytes(tables)
    );
    let is_used = |setting: &Setting| match status.as_deref() {
        Some("on") => Some(true),
        Some("off") => Some(false),
        // Before 17, "try" does not say whether it worked.
        _ => match setting.value.as_str() {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        },
    };
    let fixed = |draft: Draft| {
        draft
            .advice("reserve huge pages for shared_buffers on the host first: with huge_pages = on a server without them does not start")
            .run(format!("$ sysctl -w vm.nr_hugepages={:.0}", (buffers * node.servers as f64 * 1.05 / (2.0 * 1024.0 * 1024.0)).ceil()))
            .run_all(setting.change("on"))
    };
    Ok(vec![match is_used(setting) {
        Some(true) => pass(format!("{}, and used", setting.words())),
        _ if tables <= most => {
            pass(format!("{claim}, which is little")).figure(tables, Unit::Bytes).at_most(most)
        }
        Some(false) => fixed(warn("huge_pages", claim).figure(tables, Unit::Bytes).at_most(most)),
        None => unknown(
            claim,
            "this release does not show whether the server got huge pages: see Private_Hugetlb in \
            /proc/PID/smaps",
        )
        .figure(tables, Unit::Bytes)
        .at_most(most),
    }])
}
