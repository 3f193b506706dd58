//! The flags of TPC-C.

use crate::quantity::{self, ValueError};
use ::prove::live::Isolation;
use app::run::tpcc::Options;
use clap::Args;
use std::time::Duration;

/// The flags of TPC-C.
#[derive(Clone, Debug, Args)]
// Flags of a sweep have the same name.
#[group(id = "tpcc_flags")]
#[command(next_help_heading = "TPC-C (-b tpcc)")]
#[group(id = "tpcc")]
pub struct Flags {
    /// Drive only so many of the loaded warehouses, ten terminals each [default: all]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count)]
    pub warehouses: Option<u64>,
    /// No keying and think times: every session starts its next transaction when the last one has ended
    #[arg(long)]
    pub no_delays: bool,
    /// Isolation level: rc, rr, ser (read committed, repeatable read, serializable) [default: rc]
    #[arg(long, value_name = "LEVEL", value_parser = quantity::isolation)]
    pub isolation: Option<Isolation>,
    /// Take transactions from the deck of clause 5.2.4.2 instead of choosing them at random by 45/43/4/4/4
    #[arg(long)]
    pub deck: bool,
    /// Use no database: each transaction takes this long (milliseconds, or as 5ms). Shows the cost of the client alone; needs --warehouses
    #[arg(long, value_name = "TIME", value_parser = quantity::duration_ms)]
    pub simulate: Option<Duration>,
    /// Find the largest number of warehouses that passes: 90th percentiles within their limits and --efficiency reached; each step
    /// takes --warmup and -T
    #[arg(long, conflicts_with_all = ["no_delays", "simulate", "warehouses"])]
    pub until_slo: bool,
    /// The least efficiency that passes, in percent of 12.86 New-Orders per minute and warehouse [default: 95]
    #[arg(long, value_name = "PERCENT", value_parser = efficiency, conflicts_with = "no_delays")]
    pub efficiency: Option<f64>,
}

fn efficiency(text: &str) -> Result<f64, ValueError> {
    let percent = text.trim().trim_end_matches('%').parse::<f64>().ok();
    percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| {
        ValueError::new(format!("{text:?} is not a percentage"), "write a number from 0 to 100, as 95")
    })
}

impl Flags {
    /// What the flags select.
    pub fn value(self) -> Options {
        Options {
            warehouses: self.warehouses,
            no_delays: self.no_delays,
            isolation: self.isolation,
            deck: self.deck,
            simulate: self.simulate,
            until_slo: self.until_slo,
            efficiency: self.efficiency,
        }
    }
}
