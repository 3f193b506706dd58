//! CAP: space that runs out, and unexpected use of space.

mod full;

pub(super) use full::is_of_full_disk;

use super::generator::{bytes_per_row, free_for_data};
use super::paste::word;
use crate::case::{Case, Thing};
use crate::rule::Need::{Facts, Field, Peers};
use crate::rule::{Answer, Claim, Rule};
use crate::series::Series;
use crate::statistics::contrasts;
use crate::units;
use record::finding::{Level, Severity, Window};
use record::statement::quoted;
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "CAP-01",
        title: "an index is in another tablespace than its table",
        needs: &[Field("table", "relation"), Field("mount", "free_bytes")],
        limits: "table and indexes in different tablespaces, one of them on a disk less than 20 % free (R0: the disk was full)",
        judge: left_behind,
        links: &["https://www.postgresql.org/docs/current/manage-ag-tablespaces.html"],
    },
    Rule {
        id: "CAP-02",
        title: "a relation is near 32 TB",
        needs: &[Field("table", "bytes")],
        limits: "80 % of 2^32 - 2 blocks",
        judge: relation_limit,
        links: &["https://www.postgresql.org/docs/current/limits.html"],
    },
    Rule {
        id: "CAP-03",
        title: "a disk will be full before the load ends",
        needs: &[Field("mount", "free_bytes")],
        limits: "full before the load ends, or within an hour at the present rate (and within 10 minutes, or twenty times the length of the recording), or \
            less than 5 % free",
        judge: fills,
        links: &["docs/loading.md"],
    },
    Rule {
        id: "CAP-05",
        title: "the WAL that the server must keep does not fit its disk",
        needs: &[Facts("setting"), Field("mount", "size_bytes")],
        limits: "wal_keep_size and max_wal_size together above the size of the disk that has the WAL, wal_keep_size above half of it (ours)",
        judge: kept_wal,
        links: &["https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-WAL-KEEP-SIZE"],
    },
    Rule {
        id: "CAP-04",
        title: "the same rows take different space on different nodes",
        needs: &[Peers("table", 3)],
        limits: "5 % from the median of the other nodes, in bytes per row (R0: 126 against 107 TB)",
        judge: bytes_differ,
        links: &[],
    },
];

/// Share of a disk that is free.
const FREE_SHARE: f64 = 0.2;
/// 2^32 - 2 blocks of 8 kB.
const RELATION_BYTES_MAX: f64 = 4_294_967_294.0 * 8_192.0;
/// Of that.
const RELATION_SHARE: f64 = 0.8;
/// Until the disk is full.
const SOON_S: f64 = 3_600.0;
/// The same for a recording of seconds: this time, or so many times its own length. The WAL of a minute may be what max_wal_size lets grow, and then stays.
const SOON_SHORT_S: f64 = 600.0;
const SOON_LENGTHS: f64 = 20.0;
/// A disk with less free cannot be filled much longer.
const FREE_SHARE_MIN: f64 = 0.05;
/// Bytes per row from the others'.
const DIFFERENCE: f64 = 0.05;
/// Rows below which a node's bytes per row are meaningless.
const ROWS_MIN: f64 = 10_000.0;

/// Moves the indexes from the first of these tablespaces.
fn move_indexes(from: &str, to: &str) -> String {
    let first = from.split(',').next().unwrap_or("pg_default").trim();
    format!("ALTER INDEX ALL IN TABLESPACE {} SET TABLESPACE {};", quoted(first), quoted(to))
}

fn left_behind(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut by_node: BTreeMap<&str, Vec<Thing<'_>>> = BTreeMap::new();
    for table in case.things("table") {
        let place = table.lines.word("tablespace");
        let indexes = table.lines.word("index_tablespaces");
        let elsewhere = indexes.split(',').map(str::trim).any(|index| !index.is_empty() && index != place);
        if !place.is_empty() && elsewhere {
            by_node.entry(table.place).or_default().push(table);
        }
    }
    for (node, tables) in by_node {
        let host = case.host_of(node);
        let spaces: Vec<&str> = tables
            .iter()
            .flat_map(|table| {
                table
                    .lines
                    .word("index_tablespaces")
                    .split(',')
                    .map(str::trim)
                    .chain([table.lines.word("tablespace")])
            })
            .collect();
        let holds = |mount: &Thing<'_>| {
            let parts: Vec<&str> = mount.lines.word("used_for").split(',').map(str::trim).collect();
            spaces.iter().any(|space| match *space {
                "pg_default" | "pg_global" => parts.contains(&"pgdata"),
                named => parts.iter().any(|part| part.strip_prefix("tablespace ") == Some(named)),
            })
        };
        let tight = case
            .things("mount")
            .filter(|mount| host.is_none_or(|host| host == mount.place) && holds(mount))
            .find_map(|mount| {
                let share = mount.lines.last("free_bytes")? / mount.lines.max("size_bytes")?;
                (share < FREE_SHARE).then_some((mount.name, share))
            });
        let Some((mount, share)) = tight else { continue };
        let bytes: f64 = tables.iter().filter_map(|table| table.lines.last("index_bytes")).sum();
        let first = tables[0].lines;
        claims.push(
            Claim::new(
                if share < FREE_SHARE_MIN { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{node}: indexes of {} ({}) are in other tablespaces than their tables, and {mount} has {} free",
                    units::counted(tables.len(), "table"),
                    units::bytes(bytes),
                    units::percent(share)
                ),
            )
            .on_node(node)
            .during([case.span])
            .number("tables", tables.len() as f64)
            .number("index_bytes", bytes)
            .number("free_share", share)
            .because(format!("{}: table in {}, indexes in {}", first.word("relation"), first.word("tablespace"), first.word("index_tablespaces")))
            .because("ALTER TABLE .. SET TABLESPACE moves the table but not its indexes")
            .remedy(
                "move the indexes, too",
                &[&move_indexes(first.word("index_tablespaces"), first.word("tablespace"))],
            ),
        );
    }
    Answer::of(claims, || "tablespaces of tables and their indexes, free space".to_string())
}

fn relation_limit(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let Some(bytes) = table.lines.series("bytes") else { continue };
        let now = bytes.last().unwrap_or(0.0);
        if now < RELATION_BYTES_MAX * RELATION_SHARE {
            continue;
        }
        let growth = bytes.slope().unwrap_or(0.0);
        let left = (growth > 0.0).then(|| (RELATION_BYTES_MAX - now).max(0.0) / growth);
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} has {}, {} of the maximum size of a relation",
                    table.place,
                    table.lines.word("relation"),
                    units::bytes(now),
                    units::percent(now / RELATION_BYTES_MAX)
                ),
            )
            .on_node(table.place)
            .during([bytes.window()])
            .number("bytes", now)
            .with(left, |claim, left| {
                claim.number("until_full_s", left).because(format!(
                    "at {} a second it is full in {}",
                    units::bytes(growth),
                    units::seconds(left)
                ))
            })
            .because("a relation has at most 2^32 - 2 blocks; after that every insert fails")
            .remedy(
                "split it into more partitions",
                &["CREATE TABLE .. PARTITION BY HASH (key); -- R0 used 70 partitions for 1 PB"],
            ),
        );
    }
    Answer::of(claims, || "sizes of the largest tables".to_string())
}

/// Loads that need more than is free.
fn too_large_loads(case: &Case) -> Vec<Claim> {
    let mut claims = vec![];
    for (step, lines) in case.loads() {
        let (Some(goal), Some(done), Some(rows)) =
            (lines.max("rows_goal"), lines.max("rows_total"), lines.series("rows"))
        else {
            continue;
        };
        let (Some(per_row), Some((free, mount))) = (bytes_per_row(case, lines), free_for_data(case, false))
        else {
            continue;
        };
        let left = (goal - done).max(0.0);
        let rate = rows.rate();
        if left * per_row > free && rate > 0.0 {
            claims.push(
                Claim::new(
                    Severity::High,
                    Level::DiscriminatingCounter,
                    format!(
                        "{step}: {mount} is full in {}, with {} rows still to load",
                        units::seconds(free / (rate * per_row)),
                        units::count(left - free / per_row)
                    ),
                )
                .during([rows.window()])
                .number("until_full_s", free / (rate * per_row))
                .number("bytes_per_row", per_row)
                .number("free_bytes", free)
                .number("needed_bytes", left * per_row)
                .because(format!(
                    "{} rows are left at {} bytes each on disk, WAL and indexes included",
                    units::count(left),
                    units::short(per_row)
                ))
                .remedy(
                    "stop with free space left, add space, or move partitions now",
                    &["$ pgfathom load ... --keep-free 500GB"],
                ),
            );
        }
    }
    claims
}

fn fills(case: &Case) -> Answer {
    let mut claims = too_large_loads(case);
    for mount in case.things("mount").filter(|mount| !mount.lines.word("used_for").is_empty()) {
        let (Some(free), Some(size)) = (mount.lines.series("free_bytes"), mount.lines.max("size_bytes"))
        else {
            continue;
        };
        let now = free.last().unwrap_or(0.0);
        let falling = falling(free);
        let left_s = (falling > 0.0).then(|| now / falling);
        // A load fills the disk of the data until its rows are there, which its own claim is about: nothing goes on at its rate.
        let has_data = mount.lines.word("used_for").split(',').any(|one| one.trim() != "wal");
        let to_the_end =
            |load: &crate::case::Lines| load.ticks.window().to_us + AT_THE_END_US >= free.window().to_us;
        let is_load = has_data && case.loads().iter().any(|(_, load)| to_the_end(load));
        // A slope over two samples is a guess.
        let length_s = free.window().length_us() as f64 / 1e6;
        let soon_s = SOON_S.min(SOON_SHORT_S.max(length_s * SOON_LENGTHS));
        let soon = !is_load && left_s.is_some_and(|left| left < soon_s) && free.readings() >= 5;
        let tight = size > 0.0 && now < size * FREE_SHARE_MIN;
        if (!soon && !tight) || !claims.is_empty() {
            continue;
        }
        let detail = left_s.filter(|_| soon).map(|left| format!(", and full in {}", units::seconds(left)));
        let failed = full::Failed::on(case, &mount);
        let (text, command) = full::advice(&mount);
        claims.push(
            Claim::new(
                if soon || failed.is_some() { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {}{} has {} free ({}){}{}",
                    mount.place,
                    mount.name,
                    full::whose(&mount),
                    units::bytes(now),
                    units::percent(now / size.max(1.0)),
                    detail.unwrap_or_default(),
                    failed.as_ref().map_or(String::new(), full::Failed::words)
                ),
            )
            .on_host(mount.place)
            .during([free.window()])
            .number("free_bytes", now)
            .number("falling_bytes_per_s", falling)
            .with(left_s, |claim, left| claim.number("until_full_s", left))
            .because(format!("{} is there", mount.lines.word("used_for")))
            .with(failed, |claim, failed| claim.number("failed_writes", failed.count))
            .with(
                full::has_wal(&mount).then_some("the server stops when the disk of the WAL is full"),
                Claim::because,
            )
            .remedy(
                text,
                &[&format!("$ du -xh --max-depth=2 {} | sort -h | tail", word(mount.name)), &command],
            ),
        );
    }
    Answer::of(claims, || "free space of every mount, and what loads still need".to_string())
}

/// Bytes a second by which a file system fills, and still does: the WAL grows once and then stays, so a line through all readings is not enough.
fn falling(free: &Series) -> f64 {
    let all = free.window();
    let half = all.from_us + all.length_us() / 2;
    let late = free.within(&[Window::new(half, all.to_us)]);
    -free.slope().unwrap_or(0.0).max(late.slope().unwrap_or(0.0))
}

/// `usertable` of `public.usertable_p17`: partitions of one table are one.
fn family(relation: &str) -> &str {
    let name = relation.rsplit('.').next().unwrap_or(relation);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() { name } else { stem.trim_end_matches(['p', '_']) }
}

/// Of each family of tables, by node: bytes of heap, bytes of indexes, rows, dead rows.
fn sums_by_family(case: &Case) -> BTreeMap<&str, BTreeMap<&str, [f64; 4]>> {
    let last_seen = |table: &Thing<'_>| table.lines.series("bytes").map_or(0, |bytes| bytes.window().to_us);
    // A table that the last look of its node did not find has been dropped: a load that begins again leaves the old one in the record.
    let mut last_looks: BTreeMap<&str, u64> = BTreeMap::new();
    for table in case.things("table") {
        let last = last_looks.entry(table.place).or_default();
        *last = last_seen(&table).max(*last);
    }
    let mut families: BTreeMap<&str, BTreeMap<&str, [f64; 4]>> = BTreeMap::new();
    for table in case.things("table").filter(|table| last_looks.get(table.place) == Some(&last_seen(table))) {
        let sums =
            families.entry(family(table.lines.word("relation"))).or_default().entry(table.place).or_default();
        for (sum, field) in sums.iter_mut().zip(["bytes", "index_bytes", "live_rows", "dead_rows"]) {
            *sum += table.lines.last(field).unwrap_or(0.0);
        }
    }
    families
}

/// Sizes may lag behind the rows of a load that goes on: no row is smaller than its header.
fn is_measured(sums: &[f64; 4]) -> bool {
    const ROW_HEADER_BYTES: f64 = 24.0;
    sums[0] + sums[1] >= sums[2] * ROW_HEADER_BYTES
}

fn bytes_differ(case: &Case) -> Answer {
    let mut claims = vec![];
    let mut looked = 0;
    for (family, nodes) in sums_by_family(case) {
        let nodes: Vec<(&str, [f64; 4])> =
            nodes.into_iter().filter(|(_, sums)| sums[2] >= ROWS_MIN && is_measured(sums)).collect();
        if nodes.len() < 3 {
            continue;
        }
        looked += 1;
        let per_row: Vec<f64> = nodes.iter().map(|(_, sums)| (sums[0] + sums[1]) / sums[2]).collect();
        for contrast in contrasts(&per_row) {
            if (contrast.ratio - 1.0).abs() <= DIFFERENCE || contrast.deviations.abs() < 3.0 {
                continue;
            }
            let (node, sums) = nodes[contrast.index];
            let others: Vec<[f64; 4]> =
                nodes.iter().filter(|(other, _)| *other != node).map(|(_, sums)| *sums).collect();
            let typical = |index: usize| {
                crate::statistics::median(others.iter().map(|sums| sums[index] / sums[2])).unwrap_or(0.0)
            };
            claims.push(
                Claim::new(
                    Severity::Low,
                    Level::PeerContrast,
                    format!(
                        "{node}: a row of {family} takes {} bytes; on {} other nodes it takes {}",
                        units::short(contrast.value),
                        others.len(),
                        units::short(contrast.others)
                    ),
                )
                .on_node(node)
                .during([case.span])
                .number("bytes_per_row", contrast.value)
                .number("peers_bytes_per_row", contrast.others)
                .because(format!(
                    "heap {} against {} bytes a row, indexes {} against {}",
                    units::short(sums[0] / sums[2]),
                    units::short(typical(0)),
                    units::short(sums[1] / sums[2]),
                    units::short(typical(1))
                ))
                .because(format!(
                    "dead rows: {} of the live ones against {}",
                    units::percent(sums[3] / sums[2]),
                    units::percent(typical(3))
                ))
                .lacking("sizes come from relpages, which ANALYZE and VACUUM update")
                .remedy(
                    "compare fillfactor and insertion order; rebuild bloated indexes and tables",
                    &[
                        &format!("REINDEX TABLE CONCURRENTLY {family};"),
                        "SELECT * FROM pgstattuple_approx('t');",
                    ],
                ),
            );
        }
    }
    if looked == 0 {
        return Answer::CannotTell(format!("no table has {} rows on three nodes", units::count(ROWS_MIN)));
    }
    Answer::of(claims, || format!("bytes per row of {} on each node", units::counted(looked, "table")))
}

/// A load that ends at most so long before the readings was going on at their end.
const AT_THE_END_US: u64 = 5_000_000;
/// The least part of a disk that kept WAL takes: with less another setting is what does not fit.
const KEPT_SHARE_MIN: f64 = 0.5;
/// `max_wal_size`, by default.
const MAX_WAL_BYTES: f64 = 1_073_741_824.0;
/// The part of the disk that the remedy keeps.
const SHARE_TO_KEEP: f64 = 0.25;
/// Free space below which the disk is nearly full already.
const FREE_SHARE_LOW: f64 = 0.3;

/// CAP-05.
fn kept_wal(case: &Case) -> Answer {
    let mut claims = vec![];
    for node in case.nodes() {
        let Some(text) = case.setting(node, "wal_keep_size") else { continue };
        let (Some(kept), Some(host)) = (units::setting(text), case.host_of(node)) else { continue };
        let uses = |mount: &Thing<'_>, what: &str| {
            mount.lines.word("used_for").split(',').any(|one| one.trim() == what)
        };
        let mounts: Vec<Thing<'_>> = case.at("mount", host).collect();
        let own = mounts
            .iter()
            .find(|mount| uses(mount, "wal"))
            .or(mounts.iter().find(|mount| uses(mount, "pgdata")));
        let Some((size, free)) =
            own.and_then(|mount| Some((mount.lines.last("size_bytes")?, mount.lines.last("free_bytes")?)))
        else {
            continue;
        };
        // Between two checkpoints so much is added to what is kept.
        let added = case.setting(node, "max_wal_size").and_then(units::setting).unwrap_or(MAX_WAL_BYTES);
        if size <= 0.0 || kept < size * KEPT_SHARE_MIN || kept + added <= size {
            continue;
        }
        let enough_mb = (size * SHARE_TO_KEEP / 1_048_576.0).max(16.0).floor();
        claims.push(
            Claim::new(
                if free < size * FREE_SHARE_LOW { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{node}: wal_keep_size is {text}: the server keeps so much old WAL for standbys, and up to {} (max_wal_size) beside it, and its \
                        disk has {} in all, {} of them free: it will be full, \
                     and the server stops then",
                    units::bytes(added),
                    units::bytes(size),
                    units::bytes(free)
                ),
            )
            .on_node(node)
            .on_host(host)
            .during(case.one("server", node).map(|server| server.ticks.window()))
            .number("kept_bytes", kept)
            .number("max_wal_bytes", added)
            .number("size_bytes", size)
            .number("free_bytes", free)
            .because("files of the WAL are removed only when more than this is there")
            .remedy(
                "set it to what the standbys can miss and the disk can hold; a replication slot with max_slot_wal_keep_size keeps what its standby \
                    needs, and no more",
                &[
                    &format!(
                        "ALTER SYSTEM SET wal_keep_size = '{enough_mb}MB'; SELECT pg_reload_conf(); -- at the next checkpoint the rest is removed"
                    ),
                    "SELECT count(*) AS files, pg_size_pretty(sum(size)) AS size FROM pg_ls_waldir();",
                ],
            ),
        );
    }
    Answer::of(claims, || "wal_keep_size, against the size of its disk".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_of_one_family() {
        assert_eq!(family("public.usertable_p17"), "usertable");
        assert_eq!(family("usertable_3"), "usertable");
        assert_eq!(family("public.orders"), "orders");
        assert_eq!(family("stock_p0"), "stock");
    }
}
