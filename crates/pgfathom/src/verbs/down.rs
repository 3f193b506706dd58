//! `down`: stop a local cluster that `up` made, and delete it.

use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use clap::Args;
use record::Exit;
use serde_json::json;
use std::path::{Path, PathBuf};
use target::local::{self, CLUSTER_FILE_NAME, Registry};

/// The flags of `down`.
#[derive(Debug, Args)]
#[command(after_help = "\
Only what pgfathom made is ever removed: the folder carries its marker. Without CLUSTER the clusters there are are listed.
What programs left that were killed (folders for temporary files whose process is gone) is removed in any case.")]
pub struct Down {
    /// The cluster's folder, or its cluster.toml
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<PathBuf>,
    /// Every cluster that up made
    #[arg(long, conflicts_with = "cluster", help_heading = "Cluster")]
    pub all: bool,
}

impl Down {
    /// Removes, or lists what could be removed.
    ///
    /// # Errors
    /// When the folder is not ours or its server does not stop.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        sweep(context);
        let registry = Registry::of_process();
        let chosen = match self.cluster {
            Some(path) if path.ends_with(CLUSTER_FILE_NAME) => {
                vec![path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new(".")).to_owned()]
            }
            Some(path) => vec![path],
            None if self.all => registry.clusters(),
            None => return Ok(list(context, &registry)),
        };
        if chosen.is_empty() {
            context.terminal.say("there is no cluster that up made");
        }
        for dir in &chosen {
            let removed = local::down(dir, &registry)?;
            for left in &removed.left {
                context.terminal.warn(&format!("{} is not ours and stays", left.display()));
            }
            match context.format {
                Format::Text => {
                    let was = if removed.stopped > 0 { "stopped and removed" } else { "removed (it was not running)" };
                    context.terminal.data(&format!("down     {}   {was}", dir.display()));
                }
                Format::Json => context.terminal.data(
                    &json!({"verb": "down", "dir": dir.display().to_string(), "stopped": removed.stopped, "left": removed.left})
                        .to_string(),
                ),
            }
        }
        Ok(Exit::Ok)
    }
}

/// Removes what killed programs left, and says so.
fn sweep(context: &Context) {
    for folder in target::leftover::remove_leftovers() {
        context.terminal.say(&format!("removed {}: its program was killed", folder.display()));
    }
    let servers = target::throwaway::remove_orphans();
    if servers > 0 {
        context.terminal.say(&format!(
            "removed {}: their programs were killed",
            human::plural(servers as u64, "throwaway cluster")
        ));
    }
}

/// The clusters there are, one folder a line.
fn list(context: &Context, registry: &Registry) -> Exit {
    let clusters = registry.clusters();
    for dir in &clusters {
        context.terminal.data(&dir.display().to_string());
    }
    match clusters.first() {
        None => context.terminal.say("there is no cluster that up made"),
        Some(first) => {
            context.terminal.say(&format!(
                "name one to remove it: pgfathom down {}; or all: pgfathom down --all",
                first.display()
            ));
        }
    }
    Exit::Ok
}
