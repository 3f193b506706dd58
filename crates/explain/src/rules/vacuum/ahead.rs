//! What a vacuum that sleeps for its cost limit has before it. Its progress counts the scan of the table alone; the indexes and the pages with dead rows
//! follow,
//! and to change a page costs more than to read it (`vacuum_cost_page_dirty`), so that they take most of the time where the limit is small.

use super::{DEAD_ROWS_HARM, DEAD_SHARE_HARM, pace, vacuums};
use crate::case::{Case, Thing};
use crate::rules::costly::plain;
use crate::units;
use std::fmt;

/// A vacuum that ends so soon may be paced: that is what the limit is for.
const SOON_S: f64 = 600.0;
/// Bytes of a block, by default.
const BLOCK_BYTES: f64 = 8_192.0;
/// Characters of a name.
const NAME_CHARS: usize = 80;

/// The cost that autovacuum may have, as the settings have it.
pub(super) struct Pacing<'a> {
    pub(super) delay: &'a str,
    pub(super) limit: &'a str,
    /// The cost of a page that is found in memory, and of one that is changed.
    hit: f64,
    dirty: f64,
}

impl<'a> Pacing<'a> {
    /// The settings of a node at a time.
    pub(super) fn of(case: &'a Case, node: &str, at_us: u64) -> Pacing<'a> {
        let setting = |name: &str| case.setting_at(node, name, at_us).filter(|value| *value != "-1");
        let number =
            |name: &str, default: f64| setting(name).and_then(|value| value.parse().ok()).unwrap_or(default);
        // Only -1 means the setting of VACUUM, which is 0 by default.
        let delay = match case.setting_at(node, "autovacuum_vacuum_cost_delay", at_us) {
            Some("-1") => setting("vacuum_cost_delay").unwrap_or("0"),
            own => own.unwrap_or("2ms"),
        };
        Pacing {
            delay,
            limit: setting("autovacuum_vacuum_cost_limit").or(setting("vacuum_cost_limit")).unwrap_or("200"),
            hit: number("vacuum_cost_page_hit", 1.0),
            dirty: number("vacuum_cost_page_dirty", 20.0),
        }
    }

    /// The cost of a second; `None` without a delay.
    fn per_s(&self) -> Option<f64> {
        let delay_s = units::setting(self.delay)? / 1e3;
        let limit: f64 = self.limit.parse().ok()?;
        (delay_s > 0.0 && limit > 0.0).then(|| limit / delay_s)
    }
}

/// What the slowest vacuum of a node has before it.
pub(super) struct Ahead<'a> {
    relation: &'a str,
    /// Until it has scanned its table, and then until it has removed the dead rows.
    scan_s: f64,
    rest_s: f64,
    dead_rows: f64,
    live_rows: f64,
    is_alone: bool,
}

fn table<'a>(case: &'a Case, node: &'a str, relation: &str) -> Option<Thing<'a>> {
    case.at("table", node).find(|table| table.lines.word("relation") == relation)
}

/// Of the vacuums of a node the one that takes the longest; `None` if the pace of one is not known.
pub(super) fn slowest<'a>(case: &'a Case, node: &'a str, pacing: &Pacing<'_>) -> Option<Ahead<'a>> {
    let count = vacuums(case, node).count();
    let each: Option<Vec<Ahead<'a>>> =
        vacuums(case, node).map(|progress| of(case, node, &progress, pacing, count)).collect();
    each?.into_iter().max_by(|left, right| left.all_s().total_cmp(&right.all_s()))
}

fn of<'a>(
    case: &'a Case,
    node: &'a str,
    progress: &Thing<'a>,
    pacing: &Pacing<'_>,
    count: usize,
) -> Option<Ahead<'a>> {
    let relation = progress.lines.word("relation");
    let (_, scan_s) = pace(progress.lines)?;
    let table = table(case, node, relation);
    let last = |field: &str| table.as_ref().and_then(|table| table.lines.last(field)).unwrap_or(0.0);
    let is_scanning = progress.lines.word("phase") == "scanning heap";
    // Each dead row may stand on a page of its own.
    let changed = last("dead_rows").min(progress.lines.max("total").unwrap_or(0.0));
    let indexes = if changed > 0.0 { last("index_bytes") / BLOCK_BYTES } else { 0.0 };
    let cost = changed * (pacing.hit + pacing.dirty) + indexes * pacing.hit;
    // Workers divide the limit.
    let per_s = pacing.per_s().map(|per_s| per_s / count.max(1) as f64);
    let rest_s = per_s.filter(|_| is_scanning).map_or(0.0, |per_s| cost / per_s);
    Some(Ahead {
        relation,
        scan_s,
        rest_s,
        dead_rows: last("dead_rows"),
        live_rows: last("live_rows"),
        is_alone: count == 1,
    })
}

impl Ahead<'_> {
    fn all_s(&self) -> f64 {
        self.scan_s + self.rest_s
    }

    /// Whether it is the only one and ends soon.
    pub(super) fn is_soon(&self) -> bool {
        self.is_alone && self.all_s() <= SOON_S
    }

    /// Whether dead rows pile up before it ends.
    pub(super) fn is_behind(&self) -> bool {
        let is_full = self.dead_rows >= DEAD_ROWS_HARM && self.dead_rows >= self.live_rows * DEAD_SHARE_HARM;
        is_full && self.all_s() > SOON_S
    }

    /// How the time is computed.
    pub(super) fn because(&self) -> String {
        format!(
            "{} has {} dead rows beside {}; the scan ends in {}, and by the cost of pages that are changed what follows takes {}",
            plain(self.relation, NAME_CHARS),
            units::count(self.dead_rows),
            units::count(self.live_rows),
            units::seconds(self.scan_s),
            units::seconds(self.rest_s)
        )
    }
}

impl fmt::Display for Ahead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = plain(self.relation, NAME_CHARS);
        let all = units::seconds(self.all_s());
        match self.rest_s > self.scan_s {
            true => write!(
                f,
                "at this pace the vacuum of {relation} ends in about {all}, most of which is for pages with dead rows, which it changes"
            ),
            false => write!(f, "at this pace the vacuum of {relation} ends in {all}"),
        }
    }
}
