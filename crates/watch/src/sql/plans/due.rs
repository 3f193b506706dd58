//! Which statements are worth a plan: those that take the most of the time, and each once until something changes.

use super::{Known, Plans};
use crate::collect::Batch;
use record::event;
use record::watched::{Sampled, WAIT_CPU, Wait};
use serde_json::Value;
use std::collections::HashSet;

/// Statements that are looked at each time, by their time.
const TOP: usize = 5;
/// A statement with a smaller share of the time of all statements is not planned.
const SHARE_MIN: f64 = 0.05;
/// A statement that takes less for an execution has no plan to improve.
const MEAN_MS_MIN: f64 = 0.2;
/// A statement whose executions take so many times as long as when it was planned is planned again.
const LONGER_FACTOR: f64 = 4.0;
/// Sessions that were seen to compute with a statement whose executions are too short for that.
const AT_WORK_MIN: u64 = 4;
/// The same, of all that were seen to compute.
const AT_WORK_SHARE_MIN: f64 = 0.3;
/// Sessions that were seen at work with a statement, from which on its text is looked for among theirs, and how many of these at once.
const SEEN_MIN: u64 = 2;
const UNKNOWN_MAX: usize = 20;
/// By how much what samples show exceeds what was counted.
const UNCOUNTED_FACTOR: f64 = 3.0;
/// The state of a session at work.
const ACTIVE: &str = "active";
/// The time for which a session in a sample stands: the same for all, so that only shares matter.
const SAMPLE_MS: f64 = 1_000.0;
/// Texts that are kept for them.
const TEXTS_MAX: usize = 500;
/// Statements that are planned in one recording.
const STATEMENTS_MAX: usize = 20;

/// A statement to plan.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) database: String,
    pub(super) query_id: String,
    /// Mean of its newest executions.
    pub(super) mean_ms: f64,
}

/// What a statement took: in the recording, and in the newest look at the statements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    whole: Cost,
    newest: Cost,
    /// The time of that look.
    newest_us: u64,
}

/// Time and executions.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ms: f64,
    calls: u64,
}

impl Cost {
    fn mean_ms(self) -> f64 {
        self.ms / self.calls.max(1) as f64
    }
}

impl Plans {
    /// Keeps what a sample of the statements returned.
    pub(super) fn take(&mut self, batch: &Batch) {
        let last_us = self.last_us;
        self.take_texts(batch);
        for (t_us, interval_us, line) in &batch.lines {
            if let Sampled::Wait(line) = line
                && *t_us > last_us
            {
                self.take_sample(*t_us, line);
                self.take_at_work(line);
            }
            // The end adds to the batch of the last tick.
            if let Sampled::Statement(line) = line
                && *interval_us > 0
                && *t_us > last_us
            {
                self.last_us = *t_us;
                let figures = self.totals.entry((line.database.clone(), line.query_id.clone())).or_default();
                let cost = Cost { ms: line.total_ms.unwrap_or(0.0), calls: line.calls.unwrap_or(0) };
                figures.whole.ms += cost.ms;
                figures.whole.calls += cost.calls;
                (figures.newest, figures.newest_us) = (cost, *t_us);
            }
        }
    }

    fn take_texts(&mut self, batch: &Batch) {
        for event in batch.events.iter().filter(|event| event.kind == event::QUERY) {
            let word =
                |name: &str| event.more.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
            if self.texts.len() < TEXTS_MAX {
                self.texts.insert(
                    word("query_id"),
                    Known { text: word("text"), user: word("user"), ..Known::default() },
                );
                if event.more.contains_key("database") {
                    self.sampled.insert(word("query_id"), word("database"));
                }
            }
        }
    }

    /// Without counters of statements, each session that is seen at work with one counts as [`SAMPLE_MS`] of its time. How often it is executed is not known.
    fn take_sample(&mut self, t_us: u64, line: &Wait) {
        let Some((query_id, database)) =
            line.query_id.as_ref().and_then(|id| Some((id, self.sampled.get(id)?)))
        else {
            return;
        };
        self.last_us = t_us;
        let ms = line.sessions as f64 * SAMPLE_MS;
        let figures = self.totals.entry((database.clone(), query_id.clone())).or_default();
        if figures.newest_us != t_us {
            (figures.newest, figures.newest_us) = (Cost::default(), t_us);
        }
        for cost in [&mut figures.whole, &mut figures.newest] {
            cost.ms += ms;
            cost.calls += line.sessions;
        }
    }

    /// Counts sessions that compute, whatever the statement's counters say.
    fn take_at_work(&mut self, line: &Wait) {
        if let Some(query_id) = line.query_id.as_ref().filter(|_| line.wait_type == WAIT_CPU)
            && line.state == ACTIVE
        {
            *self.at_work.entry(query_id.clone()).or_default() += line.sessions;
        }
    }

    /// Statements with which sessions were seen at work, and which have no text yet: those of most looks first.
    pub(in crate::sql) fn at_work_without(&self, known: &HashSet<String>) -> Vec<String> {
        let unknown = |(id, seen): &(&String, &u64)| **seen >= SEEN_MIN && !known.contains(*id);
        let mut found: Vec<(&String, &u64)> = self.at_work.iter().filter(unknown).collect();
        found.sort_by_key(|(_, seen)| std::cmp::Reverse(**seen));
        found.into_iter().take(UNKNOWN_MAX).map(|(id, _)| id.clone()).collect()
    }

    /// Statements with which sessions compute for far longer than their executions take: planning them may be what takes the time, and
    /// `pg_stat_statements` counts that only with `track_planning`.
    fn uncounted(&self) -> Vec<Wanted> {
        let all: u64 = self.at_work.values().sum();
        let seen = self
            .at_work
            .iter()
            .filter(|(_, seen)| **seen >= AT_WORK_MIN && **seen as f64 >= all as f64 * AT_WORK_SHARE_MIN);
        let wanted = seen.filter_map(|(id, seen)| {
            let ((database, _), figures) = self.totals.iter().find(|((_, of), _)| of == id)?;
            let is_counted = figures.whole.ms * UNCOUNTED_FACTOR >= *seen as f64 * SAMPLE_MS;
            let mean_ms = figures.newest.mean_ms();
            (!is_counted).then(|| Wanted { database: database.clone(), query_id: id.clone(), mean_ms })
        });
        wanted.collect()
    }

    /// The statements that are worth a plan, the costliest first: those of the newest look before those of the whole recording, because what has become
    /// slow a moment ago is hidden in the means of an hour.
    fn top(&self) -> Vec<Wanted> {
        let last_us = self.last_us;
        let newest =
            |figures: &Figures| if figures.newest_us == last_us { figures.newest } else { Cost::default() };
        let mut worth = self.costliest(newest);
        for wanted in self.costliest(|figures| figures.whole).into_iter().chain(self.uncounted()) {
            if worth.iter().all(|other| other.query_id != wanted.query_id) {
                worth.push(wanted);
            }
        }
        worth
    }

    /// The statements that are worth a plan by one cost of each.
    fn costliest(&self, cost: impl Fn(&Figures) -> Cost) -> Vec<Wanted> {
        let mut all: Vec<_> =
            self.totals.iter().map(|(key, figures)| (key, cost(figures), figures)).collect();
        let whole: f64 = all.iter().map(|(_, cost, _)| cost.ms).sum();
        all.sort_by(|left, right| right.1.ms.total_cmp(&left.1.ms).then_with(|| left.0.cmp(right.0)));
        let is_worth =
            |cost: Cost| cost.ms >= whole * SHARE_MIN && cost.ms > 0.0 && cost.mean_ms() >= MEAN_MS_MIN;
        let worth = all.into_iter().take(TOP).filter(|(_, cost, _)| is_worth(*cost));
        worth
            .map(|((database, query_id), _, figures)| Wanted {
                database: database.clone(),
                query_id: query_id.clone(),
                mean_ms: figures.newest.mean_ms(),
            })
            .collect()
    }

    /// Those that were never planned, and those that take much longer than when they were; at the end also the others, because their plan may have
    /// changed.
    pub(super) fn due(&self, is_end: bool) -> Vec<Wanted> {
        let mut due = self.top();
        due.retain(|wanted| match self.seen.get(&wanted.query_id) {
            None => self.seen.len() < STATEMENTS_MAX,
            Some(Some(seen)) => is_end || wanted.mean_ms >= seen.mean_ms * LONGER_FACTOR,
            Some(None) => false,
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::*;
    use record::watched::Statement;

    fn sampled(t_us: u64, rows: &[(&str, f64, u64)]) -> Batch {
        let mut batch = Batch::default();
        for (id, total_ms, calls) in rows {
            let line = Statement {
                database: "db".to_string(),
                query_id: (*id).to_string(),
                total_ms: Some(*total_ms),
                calls: Some(*calls),
                ..Statement::default()
            };
            batch.counted(t_us, 10_000_000, line);
        }
        batch
    }
    #[test]
    fn only_costly_statements_are_planned_and_each_once_until_the_end() {
        let mut plans = Plans::default();
        // Much time in cheap executions, little time in costly ones, and what is worth a look.
        plans.take(&sampled(1, &[("cheap", 900.0, 100_000), ("rare", 5.0, 1), ("slow", 500.0, 100)]));
        let ids = |due: Vec<Wanted>| due.into_iter().map(|wanted| wanted.query_id).collect::<Vec<_>>();
        assert_eq!(ids(plans.due(false)), ["slow"]);
        plans.seen.insert("slow".to_string(), Some(Seen { hash: "h".to_string(), mean_ms: 5.0 }));
        assert!(plans.due(false).is_empty());
        assert_eq!(ids(plans.due(true)), ["slow"]);
        // What could not be planned is not tried again.
        plans.seen.insert("slow".to_string(), None);
        assert!(plans.due(true).is_empty());
        for number in 0..STATEMENTS_MAX {
            plans.seen.insert(number.to_string(), None);
        }
        plans.take(&sampled(2, &[("new", 5000.0, 10)]));
        assert!(plans.due(false).is_empty(), "the budget is used up");
    }

    #[test]
    fn what_becomes_slow_later_is_planned_although_its_mean_is_still_short() {
        let mut plans = Plans::default();
        let ids = |due: Vec<Wanted>| due.into_iter().map(|wanted| wanted.query_id).collect::<Vec<_>>();
        plans.take(&sampled(1, &[("later", 5_000.0, 250_000), ("other", 100.0, 100)]));
        assert!(plans.due(false).is_empty());
        // Its index was dropped: 20 ms an execution, but 0.1 ms over the whole recording.
        plans.take(&sampled(2, &[("later", 20_000.0, 1_000)]));
        assert_eq!(ids(plans.due(false)), ["later"]);
        plans.seen.insert("later".to_string(), Some(Seen { hash: "h".to_string(), mean_ms: 20.0 }));
        assert!(plans.due(false).is_empty());
        plans.take(&sampled(3, &[("later", 20_000.0, 200)]));
        assert_eq!(ids(plans.due(false)), ["later"], "five times as long");
    }

    #[test]
    fn what_is_planned_for_longer_than_it_runs_is_planned_here_as_well() {
        let mut plans = Plans::default();
        let at_work = |sessions: u64| Wait {
            query_id: Some("short".to_string()),
            wait_type: WAIT_CPU.to_string(),
            state: ACTIVE.to_string(),
            sessions,
            ..Wait::default()
        };
        let mut batch = sampled(10, &[("short", 100.0, 2_000), ("other", 300.0, 10_000)]);
        for second in 11..20 {
            batch.reading(second, at_work(1));
        }
        plans.take(&batch);
        let ids = |due: Vec<Wanted>| due.into_iter().map(|wanted| wanted.query_id).collect::<Vec<_>>();
        assert_eq!(ids(plans.due(true)), ["short"], "9 s at work, 0.1 s of execution");
        // What was counted explains what was seen.
        plans.take(&sampled(30, &[("short", 8_000.0, 100_000)]));
        assert!(plans.due(true).is_empty());
    }
}
