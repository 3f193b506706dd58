//! What a commit costs on a cluster whose nodes are far apart (`up --delay`): predicted from pings and measured, before a run drives it.
//!
//! The mechanism is that of `prove wide`. It makes a table of its own, so it is used only on clusters that pgfathom itself started with distances.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::prove::fault::Journal;
use ::prove::live::{Options, wide};
use ::prove::promise::Settings;
use connect::conninfo::ConnSpec;
use postgres::Client;
use record::Summary;
use record::benchmark::{Benchmark, COUNT, Column, MICROSECONDS, Row, Table};
use run::drive::Account;
use run::verdict::Opinion;
use workloads::driving::{Refusal, ServerAudit};

use super::testbed::{Needs, Testbed};
use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;

/// Its name in a summary.
const NAME: &str = "commit latency";
/// How long the commits are timed.
const TIME: Duration = Duration::from_secs(2);

/// The costs of commits, for the summary of a run.
#[derive(Clone, Debug)]
pub(crate) struct Commits {
    found: Benchmark,
}

impl Commits {
    /// Times the commits, if the cluster was made with distances; else there is nothing to compare.
    ///
    /// # Errors
    /// When they cannot be timed.
    pub(crate) fn of(address: &Address, context: &Context) -> Result<Option<Commits>, Failure> {
        let made = address.file().and_then(|address| address.file.made.as_ref());
        let Some(delay) = made.and_then(|made| made.delay.clone()) else { return Ok(None) };
        context.terminal.detail("timing commits over the distances of the cluster");
        let journal = Arc::new(Journal::begin(&Journal::default_dir())?);
        let testbed = Testbed::there(address, context, &journal, (false, Needs::default()))?;
        let options = Options { duration: TIME, ..Options::default() };
        let entry: ConnSpec = testbed.site.entry();
        let waits = Settings::of(&entry, &options)?.waits_for_standbys();
        let report = wide::run(&testbed.site, &options, waits, &AtomicBool::new(false))?;
        Ok(Some(Commits { found: benchmark(&report, &delay) }))
    }

    /// Adds them to what is reported.
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        summary.benchmarks.push(self.found.clone());
    }
}

fn benchmark(report: &wide::Report, delay: &str) -> Benchmark {
    let row = |cost: &wide::Cost| Row {
        name: cost.nodes.join(", "),
        values: vec![
            Some(cost.predicted),
            cost.round_trip_us[0].map(|us| us as f64),
            cost.predicted_us[0].map(|us| us as f64),
            Some(cost.commit_us_p50[0] as f64),
        ],
        met: None,
    };
    let columns = vec![
        Column::new("round trips", COUNT),
        Column::new("each", MICROSECONDS),
        Column::new("predicted", MICROSECONDS),
        Column::new("measured p50", MICROSECONDS),
    ];
    let rows = report.costs.iter().map(row).collect();
    Benchmark {
        name: NAME.to_owned(),
        disclaimer: format!("one session before the run, no load; --delay {delay}"),
        tables: vec![Table { name: NAME.to_owned(), columns, rows, are_parts: false }],
        ..Benchmark::default()
    }
}

impl ServerAudit for Commits {
    fn before(&mut self, _: &mut Client) -> Result<(), Refusal> {
        Ok(())
    }

    fn after(&mut self, _: &mut Client) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge(&self, _: &Account, _: usize, summary: &mut Summary, _: &mut Opinion) {
        self.add_to(summary);
    }
}
