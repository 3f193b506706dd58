//! `down`: stop a local cluster that `up` made, and delete it.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::human;
use connect::cluster_file::CLUSTER_FILE_NAME;
use lab::local::{self, Registry};
use record::Exit;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Which clusters to remove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// None: list them.
    List,
    /// The one in this folder, or with this cluster file.
    One(PathBuf),
    /// Every cluster that `up` made.
    All,
}

impl Plan {
    /// Removes, or lists what could be removed.
    ///
    /// # Errors
    /// When the folder is not ours or its server does not stop.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        sweep(context);
        let registry = Registry::of_process();
        let chosen = match self {
            Plan::One(path) if path.ends_with(CLUSTER_FILE_NAME) => {
                vec![path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new(".")).to_owned()]
            }
            Plan::One(path) => vec![path],
            Plan::All => registry.clusters(),
            Plan::List => return Ok(list(context, &registry)),
        };
        if chosen.is_empty() {
            context.terminal.say("there is no cluster started by pgfathom up");
        }
        for dir in &chosen {
            let removed = local::down(dir, &registry)?;
            for left in &removed.left {
                context
                    .terminal
                    .warn(&format!("{} was not made by pgfathom, so it was not removed", left.display()));
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

/// Removes what killed programs left, and reports it.
fn sweep(context: &Context) {
    for folder in lab::leftover::remove_leftovers() {
        context.terminal.say(&format!("removed {}: its program was killed", folder.display()));
    }
    let servers = lab::throwaway::remove_orphans();
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
        None => context.terminal.say("there is no cluster started by pgfathom up"),
        Some(first) => {
            context.terminal.say(&format!(
                "name one to remove it: pgfathom down {}; or all: pgfathom down --all",
                first.display()
            ));
        }
    }
    Exit::Ok
}
