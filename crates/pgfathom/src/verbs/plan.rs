//! `plan`: what a load needs before it starts.

mod examples;
mod file;

pub use examples::example_of_any;

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::Connection;
use crate::verbs::load::content::{self, OwnFlags};
use crate::verbs::load::{KeyOrder, compressible};
use app::plan::{Calibrate, Given};
use app::quantity;
use clap::{Args, ValueEnum};
use file::Sizing;
use record::Exit;
use std::path::PathBuf;
use workloads::dataset::{Registration, Request, Size};

/// The flags of `plan`.
#[derive(Debug, Args)]
#[command(after_help = examples::examples())]
pub struct Plan {
    /// What is planned: load
    #[arg(value_name = "VERB", value_enum, hide_possible_values = true)]
    pub verb: Planned,
    /// The dataset.
    #[arg(
        value_name = "WHAT",
        value_parser = clap::builder::PossibleValuesParser::new(content::names()),
        hide_possible_values = true,
        help = content::about()
    )]
    pub what: String,
    /// A live target to read settings, free space and round trips from.
    #[command(flatten)]
    pub connection: Connection,
    /// Number of rows, as 1000000, 1M, 1e12
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Data")]
    pub rows: Option<u64>,
    /// Size of the values, as 10GB, 1PB; indexes and page overhead are extra
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, conflicts_with = "rows", help_heading = "Data")]
    pub size: Option<u64>,
    #[arg(
        short = 's',
        long,
        short_alias = 'w',
        value_name = "W",
        value_parser = quantity::positive_count,
        conflicts_with_all = ["rows", "size"],
        help_heading = "Data",
        help = content::scales()
    )]
    pub scale: Option<u64>,
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = app::plan::words::fillfactor,
        help_heading = "Data",
        help = content::of_takers("--fillfactor", "fill factor in percent of the tables that transactions update")
    )]
    pub fillfactor: Option<u32>,
    /// scattered or sequential keys, as for load
    #[arg(
        long,
        value_name = "ORDER",
        value_enum,
        default_value = "scattered",
        hide_possible_values = true,
        help_heading = "Data"
    )]
    pub key_order: KeyOrder,
    /// Factor by which LZ4 can compress the values: 1 (not at all) to 6
    #[arg(long, value_name = "RATIO", default_value = "1", value_parser = compressible, help_heading = "Data")]
    pub compressible: data::Compressible,
    /// Seed of keys, values and of the simulation
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = quantity::count, help_heading = "Data")]
    pub seed: u64,
    /// Flags of single datasets.
    #[command(flatten)]
    pub own: OwnFlags,
    /// Hosts, servers, the load: also in a file.
    #[command(flatten)]
    pub sizing: Sizing,
    /// A file with such flags: `nodes = 7`, `disk = \"15TB\"`, `within = \"14d\"`; flags of the command line come first
    #[arg(short, long = "file", value_name = "FILE", help_heading = "Hosts")]
    pub file: Option<PathBuf>,
    /// Measure the rows with a small load: throwaway (a server on this host, removed afterwards) or target (a database of its own there, dropped
    /// afterwards)
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "throwaway",
        hide_possible_values = true,
        help_heading = "Measurements"
    )]
    pub calibrate: Option<Where>,
    /// Take rates and sizes from the run directory of a load
    #[arg(long, value_name = "RUN", conflicts_with = "calibrate", help_heading = "Measurements")]
    pub from: Option<PathBuf>,
    /// Take the rates of the disks and the round trips from the run directory of a check; flags come first
    #[arg(long, value_name = "RUN", help_heading = "Measurements")]
    pub check: Option<PathBuf>,
    /// Print every formula with its inputs and its result
    #[arg(long, help_heading = "Output")]
    pub explain: bool,
    /// Write the plan to this file, for load --plan, run --plan and report --plan
    #[arg(short = 'o', long = "output", value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Write a page with the forecast as a chart to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
}

/// What is planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Planned {
    /// A load and what follows it
    Load,
}

/// Where a calibration loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Where {
    /// A throwaway server
    Throwaway,
    /// The target
    Target,
}

impl Plan {
    /// Computes, prints and writes the plan.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.plan()?.run(context)
    }

    fn plan(self) -> Result<app::plan::Plan, Failure> {
        let Planned::Load = self.verb;
        let dataset = workloads::dataset::named(&self.what).ok_or_else(|| {
            Failure::usage(format!("plan load: {:?} is unknown", self.what))
                .hint(format!("known: {}", content::names().join(", ")))
        })?;
        let request = self.request(dataset)?;
        let sizing = match &self.file {
            Some(path) => self.sizing.clone().or(Sizing::read(path)?),
            None => self.sizing.clone(),
        };
        let given = Given { seed: self.seed, ..sizing.given()? };
        let has_target = self.connection.target.is_some()
            || self.connection.host.is_some()
            || self.connection.dbname.is_some()
            || self.connection.cluster.is_some();
        Ok(app::plan::Plan {
            dataset,
            request,
            given,
            address: has_target.then(|| self.connection.address()).transpose()?,
            calibrate: self.calibrate.map(|place| match place {
                Where::Throwaway => Calibrate::Throwaway,
                Where::Target => Calibrate::Target,
            }),
            from: self.from,
            check: self.check,
            explain: self.explain,
            output: self.output,
            page: self.page,
        })
    }

    /// The size and the content, with the refusals of `load`.
    fn request(&self, dataset: &Registration) -> Result<Request, Failure> {
        let name = dataset.name;
        let by_scale = dataset.size == Size::Scale;
        let takes = |flag: &str| dataset.takes.contains(&flag);
        let given = [
            (self.scale.is_some() && !by_scale, "-s/--scale"),
            (self.rows.is_some() && by_scale, "--rows"),
            (self.size.is_some() && by_scale, "--size"),
            (self.fillfactor.is_some() && !takes("--fillfactor"), "--fillfactor"),
            (self.key_order == KeyOrder::Sequential && !takes("--key-order"), "--key-order"),
            (self.compressible != data::Compressible::NONE && !takes("--compressible"), "--compressible"),
        ];
        let example = examples::example(dataset);
        if let Some((_, flag)) = given.iter().find(|(is_refused, _)| *is_refused) {
            return Err(Failure::usage(format!("{flag} is not for load {name}")).hint(example));
        }
        self.own.refuse_others(dataset)?;
        let is_sized = if by_scale { self.scale.is_some() } else { self.rows.or(self.size).is_some() };
        if !is_sized {
            let flags = if by_scale { "-s/--scale" } else { "--rows or --size" };
            return Err(Failure::usage(format!("plan load {name}: {flags} is missing")).hint(example));
        }
        if self.rows == Some(0) {
            return Err(Failure::usage("--rows: must be at least 1").hint(example));
        }
        Ok(Request {
            scale: self.scale,
            rows: self.rows,
            bytes: self.size,
            seed: self.seed,
            key_order: self.key_order.value(),
            compressible: self.compressible,
            fillfactor: self.fillfactor,
            foreign_keys: false,
            flags: self.own.flags().clone(),
        })
    }
}
