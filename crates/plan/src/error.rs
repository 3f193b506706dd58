//! Why there is no plan.

use record::number;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A type whose storage is not known.
    #[error("the storage of the type \"{definition}\" is not known")]
    Type {
        /// As in SQL.
        definition: String,
    },
    /// A value that is no JSON.
    #[error("a sampled document is not JSON: {source}")]
    Json {
        /// Why.
        source: serde_json::Error,
    },
    /// An index on a column that is not there.
    #[error("the table {table} has no column {column}")]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row that does not fit on a page.
    #[error("a row of {table} has {bytes} bytes, more than a page of {block_bytes}")]
    TooWide {
        /// The table.
        table: String,
        /// Of the row.
        bytes: u64,
        /// Of the page.
        block_bytes: u64,
    },
    /// A number out of its range.
    #[error("{value} {what} are not possible")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// More bytes than can be planned.
    #[error("{} are more than a plan takes", number::bytes(*bytes))]
    TooLarge {
        /// Of values.
        bytes: f64,
    },
    /// A share out of its range.
    #[error("{what}: {value} is not a share above 0 and up to 1")]
    Share {
        /// Of what.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// Fewer partitions than nodes.
    #[error("{partitions} partitions cannot be spread over {nodes} nodes")]
    Partitions {
        /// Given.
        partitions: u64,
        /// Given.
        nodes: u64,
    },
    /// Names of tablespaces that are not one for each disk.
    #[error("{names} tablespaces for {disks} disks of a node")]
    Tablespaces {
        /// Given.
        names: u64,
        /// Given.
        disks: u64,
    },
    /// Something in the simulation that cannot happen.
    #[error("the simulation has no {what} {number}")]
    WhatIf {
        /// Node, disk or partition.
        what: &'static str,
        /// Its number.
        number: u64,
    },
}

impl PlanError {
    /// What to type instead.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PlanError::Type { .. } | PlanError::Json { .. } | PlanError::Column { .. } => {
                "--calibrate measures the size of the rows instead of computing it".into()
            }
            PlanError::TooWide { .. } => "give a larger --block-size, or shorter rows".into(),
            PlanError::Count { least, most, .. } => {
                format!("give {} to {}", number::count(*least), number::count(*most))
            }
            PlanError::TooLarge { .. } => {
                format!("give at most {}", number::bytes(crate::VALUE_BYTES_MAX))
            }
            PlanError::Share { .. } => "give a share as 93.5% or 0.935".into(),
            PlanError::Partitions { .. } => "give at least one partition for each node, or none to have them computed".into(),
            PlanError::Tablespaces { .. } => {
                "give one name for each disk, as --tablespaces d1,d2, or --raid if a node's disks are one volume".into()
            }
            PlanError::WhatIf { .. } => {
                "nodes and disks are counted from 1, partitions from 0: --what-if slow=n2.d3:10%@6h".into()
            }
        })
    }
}
