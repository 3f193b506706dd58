//! How far the other nodes are from the entry node: small queries, on the way that the nodes themselves take where it is known, else on that of clients.

use std::time::Duration;

use engines::profile::{Protocol, Trips};

use super::ping;
use crate::client::{Client, text};
use crate::fault::Site;
use crate::live::LiveError;

/// Round trips from the entry node, in microseconds.
#[derive(Debug)]
pub(super) struct Measured {
    /// To each other node, by its name.
    nodes: Vec<(String, u64)>,
    /// To the standby whose answer a commit waits for last.
    standby: Option<u64>,
}

impl Measured {
    /// Measures them.
    pub(super) fn of(site: &Site, entry: &mut Client, patience: Duration) -> Result<Measured, LiveError> {
        let mut nodes = Vec::new();
        for (number, node) in site.nodes.iter().enumerate().filter(|(number, _)| *number != site.primary()) {
            let mut other = Client::connect(&site.between(site.primary(), number), patience)?;
            // The shortest one: a busy host can only make it longer.
            nodes.push((node.name.clone(), ping(&mut other)?.into_iter().min().unwrap_or(0)));
        }
        let standby = slowest_standby(entry, &nodes)?;
        Ok(Measured { nodes, standby })
    }

    /// To the first other node.
    pub(super) fn first(&self) -> Option<u64> {
        self.nodes.first().map(|(_, us)| *us)
    }

    /// One round trip of a commit that wrote on these other nodes.
    pub(super) fn of_commit(&self, protocol: Protocol, written: &[String], is_parallel: bool) -> Option<u64> {
        let find = |name: &String| self.nodes.iter().find(|(known, _)| known == name).map(|(_, us)| *us);
        let written: Vec<u64> = written.iter().filter_map(find).collect();
        let all: Vec<u64> = self.nodes.iter().map(|(_, us)| *us).collect();
        protocol.trip_us(Trips { written: &written, standby: self.standby, all: &all }, is_parallel)
    }
}

/// Of the standbys that a commit waits for, the one that answers last. Standbys are known by their `application_name`, which is their node's name in clusters
/// of `up`; where no name fits, the slowest of all other nodes stands for them.
fn slowest_standby(entry: &mut Client, nodes: &[(String, u64)]) -> Result<Option<u64>, LiveError> {
    let reply = entry.request(
        "select application_name, sync_state, pg_catalog.current_setting('synchronous_standby_names') \
         from pg_catalog.pg_stat_replication where sync_state in ('sync', 'quorum')",
    )?;
    let rows: Vec<Vec<String>> = reply
        .rows()
        .iter()
        .map(|row| row.iter().map(|column| text(column).unwrap_or_default()).collect())
        .collect();
    let slowest_of_all = nodes.iter().map(|(_, us)| *us).max();
    let mut trips = Vec::new();
    for row in &rows {
        match nodes.iter().find(|(name, _)| row.first() == Some(name)) {
            Some((_, us)) => trips.push(*us),
            None => return Ok(slowest_of_all),
        }
    }
    trips.sort_unstable();
    let is_quorum = rows.iter().any(|row| row[1] == "quorum");
    let needed = rows.first().filter(|_| is_quorum).and_then(|row| quorum(&row[2])).unwrap_or(trips.len());
    Ok(needed.min(trips.len()).checked_sub(1).map(|last| trips[last]))
}

/// `2` of `ANY 2 (s1, s2, s3)`.
fn quorum(names: &str) -> Option<usize> {
    let mut words = names.split([' ', '(']).filter(|word| !word.is_empty());
    words.next().filter(|word| word.eq_ignore_ascii_case("any"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_quorum_is_read() {
        assert_eq!(quorum("ANY 2 (s1, s2, s3)"), Some(2));
        assert_eq!(quorum("any 1(s1)"), Some(1));
        assert_eq!(quorum("FIRST 2 (s1, s2)"), None);
        assert_eq!(quorum(""), None);
    }
}
