//! The runs that write into a dataset, in a cluster with a ledger on each node.
//!
//! A run may write on any node, and `verify` may connect to any node. So before its first write, a run is registered in the ledger
//! of *every* node that can hold rows: each node knows the numbers of the runs whose values it holds. Reading takes the union: a node that
//! was down when a run ended, or that came later, does not make a run unknown that another node knows.
//!
//! Each number is used once in the cluster. A run that begins takes the tables of all nodes, none of them by waiting while it holds another:
//! two runs that begin at once, each from its own entry node, would otherwise each wait for the other. As long as it is on, a run
//! holds an advisory lock on every node, so that a session on any node can distinguish it from a killed one.

use std::time::{Duration, Instant};

use connect::conninfo::Pinned;
use connect::control::Control;
use connect::{ConnSpec, hot};
use engines::cluster::Cluster;
use engines::lock::{self, Key};

use crate::error::LoadError;
use crate::ledger::{self, Dataset, RUN_NO_MAX, Writer};

/// The runs that several ledgers of one dataset know, in order of their numbers.
///
/// # Errors
/// When two ledgers have different runs under one number.
pub fn merge(ledgers: Vec<Vec<Writer>>) -> Result<Vec<Writer>, LoadError> {
    let mut merged: Vec<Writer> = Vec::new();
    for writer in ledgers.into_iter().flatten() {
        match merged.iter_mut().find(|known| known.run_no == writer.run_no) {
            None => merged.push(writer),
            Some(known) if known.finished && writer.finished => {
                if known.transactions != writer.transactions || known.spec != writer.spec {
                    return Err(LoadError::TwoWriters { run_no: writer.run_no });
                }
            }
            Some(known) if writer.finished => *known = writer,
            Some(_) => {}
        }
    }
    merged.sort_by_key(|writer| writer.run_no);
    Ok(merged)
}

/// How long a run that begins tries to be the only one that does.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// How long it waits before it tries again, at least.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The ledgers of all nodes that a run may write on, each with a connection of its own.
pub struct Registry {
    places: Vec<Place>,
}

/// One node's.
struct Place {
    spec: ConnSpec,
    control: Control,
    dataset: Dataset,
    /// Runs whose mark is held: by this connection, or by one of their own where a use of a connection is a transaction.
    marks: Vec<(u16, Option<Control>)>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("nodes", &self.places.len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Connects to every node with a ledger of its own. `None`: no ledger of theirs has a dataset of this name.
    ///
    /// # Errors
    /// When a node cannot be reached or its ledger cannot be read.
    pub fn open(cluster: &Cluster, name: &str) -> Result<Option<Registry>, LoadError> {
        let mut places = Vec::new();
        let nodes = cluster.ledger_nodes();
        let several = nodes.len() > 1;
        for node in nodes {
            let found = &cluster.nodes[node].spec;
            let mut control = crate::connections::shared(found).map_err(|error| {
                if several && error.is_connection_lost() {
                    let node = cluster.nodes[node].name.clone();
                    return LoadError::LedgerAway { node, source: Box::new(error) };
                }
                error
            })?;
            let spec = crate::connections::of_node(cluster, found, &mut control)?;
            if spec != *found {
                control = crate::connections::shared(&spec)?;
            }
            // A node whose ledger has been lost is verification's business.
            if let Some(dataset) = ledger::find_dataset(&mut *control, name)? {
                places.push(Place { spec, control, dataset, marks: Vec::new() });
            }
        }
        Ok((!places.is_empty()).then_some(Registry { places }))
    }

    /// The dataset, as the first node has it.
    pub fn dataset(&self) -> &Dataset {
        &self.places[0].dataset
    }

    /// The runs that any of the nodes knows, in order of their numbers.
    ///
    /// # Errors
    /// When a ledger cannot be read, or two have different runs under one number.
    pub fn writers(&mut self) -> Result<Vec<Writer>, LoadError> {
        let ledgers = self.places.iter_mut().map(|place| {
            let writers = ledger::writers(&mut *place.control, &place.dataset)?;
            place.control.release().map_err(|source| LoadError::sql("reading pgfathom.writer", source))?;
            Ok(writers)
        });
        merge(ledgers.collect::<Result<_, _>>()?)
    }

    /// When each run wrote, in microseconds since 1970 by the clock of one node that knows all of them. Servers' clocks differ, so where no node does,
    /// all runs are given the same time, so that none of them counts as earlier.
    ///
    /// # Errors
    /// When a ledger cannot be read.
    pub fn times(&mut self) -> Result<Vec<(u16, i64, Option<i64>)>, LoadError> {
        let writers = self.writers()?;
        for place in &mut self.places {
            let times = ledger::writer_times(&mut *place.control, &place.dataset)?;
            let known = |writer: &Writer| {
                times
                    .iter()
                    .any(|(run_no, _, end)| *run_no == writer.run_no && end.is_some() == writer.finished)
            };
            if writers.iter().all(known) {
                return Ok(times);
            }
        }
        Ok(writers.iter().map(|writer| (writer.run_no, 0, writer.finished.then_some(0))).collect())
    }

    /// Registers a run on every node and returns its number, the next one of the whole cluster.
    ///
    /// # Errors
    /// When all run numbers of the dataset are used, `spec_json` is no JSON, or a node's ledger cannot be written.
    pub fn create(&mut self, spec_json: &str) -> Result<u16, LoadError> {
        let begin = Instant::now();
        let mut pause = LOCK_PAUSE;
        loop {
            let created = self.try_create(spec_json);
            if !matches!(created, Ok(Some(_))) {
                for place in &mut self.places {
                    // A connection that is lost has rolled back by itself.
                    let _ = place.control.outside().and_then(|client| client.batch_execute("rollback"));
                }
            }
            match created {
                Ok(Some(run_no)) => return Ok(run_no),
                Ok(None) if begin.elapsed() > LOCK_WAIT => return Err(LoadError::WritersBusy),
                Ok(None) => {
                    // Two that let go at the same moment must not come back at the same moment for ever.
                    let jitter = u64::from(std::process::id() ^ begin.elapsed().subsec_nanos()) % 32;
                    std::thread::sleep(pause + Duration::from_millis(jitter));
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None`: another process is at it.
    fn try_create(&mut self, spec_json: &str) -> Result<Option<u16>, LoadError> {
        const DOING: &str = "registering the run in pgfathom.writer";
        let sql = |source| LoadError::sql(DOING, source);
        let mut last = 0;
        for place in &mut self.places {
            // The mode excludes itself, so two runs that start at once get two numbers.
            let client = place.control.outside().map_err(sql)?;
            let locked =
                client.batch_execute("begin; lock table pgfathom.writer in share row exclusive mode nowait");
            match locked {
                Err(error) if error.code().is_some_and(|code| code.code() == "55P03") => return Ok(None),
                other => other.map_err(sql)?,
            }
            let row = client.query_one(
                "select coalesce(max(run_no), 0) from pgfathom.writer where dataset = $1",
                &[&place.dataset.id],
            );
            last = last.max(row.map_err(sql)?.get::<_, i32>(0));
        }
        let run_no = last + 1;
        if run_no > RUN_NO_MAX {
            return Err(LoadError::WritersExhausted { runs: RUN_NO_MAX as u32 });
        }
        for place in &mut self.places {
            let inserted = place.control.outside().map_err(sql)?.execute(
                "insert into pgfathom.writer (dataset, run_no, spec) values ($1, $2, $3::text::jsonb)",
                &[&place.dataset.id, &run_no, &spec_json],
            );
            inserted.map_err(sql)?;
        }
        for place in &mut self.places {
            place.control.outside().and_then(|client| client.batch_execute("commit")).map_err(sql)?;
        }
        Ok(Some(run_no as u16))
    }

    /// Marks a run as being on, for as long as this registry lives: an advisory lock on every node. False when another process has the mark; for a
    /// run that has no end in the ledger it means that it is on, and true that it was killed.
    ///
    /// # Errors
    /// When a node cannot be queried.
    pub fn mark(&mut self, run_no: u16) -> Result<bool, LoadError> {
        let sql = |source| LoadError::sql("marking the run as being on", source);
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            if place.marks.iter().any(|(mark, _)| *mark == run_no) {
                continue;
            }
            let key = ledger::lock::run(place.dataset.id, run_no);
            let (is_mine, holder) = if place.control.is_shared() {
                // The lock of a transaction that stays open as long as its connection lives.
                let mut holder = crate::connections::shared(&place.spec)?;
                (holder.query_one("select pg_try_advisory_xact_lock($1)", &[&key]), Some(holder))
            } else {
                (place.control.query_one("select pg_try_advisory_lock($1)", &[&key]), None)
            };
            if is_mine.map_err(sql)?.get(0) {
                place.marks.push((run_no, holder));
                continue;
            }
            for place in &mut self.places[..index] {
                let key = ledger::lock::run(place.dataset.id, run_no);
                let mine = place.marks.iter().position(|(mark, _)| *mark == run_no);
                // A connection of its own releases it when it ends.
                if mine.is_some_and(|at| place.marks.remove(at).1.is_none()) {
                    place.control.execute("select pg_advisory_unlock($1)", &[&key]).map_err(sql)?;
                }
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Who has the mark of a run, in words; `None` if no session has it by now.
    pub fn holder_of(&mut self, run_no: u16) -> Option<lock::Holder> {
        self.places.iter_mut().find_map(|place| {
            let key = Key::One(ledger::lock::run(place.dataset.id, run_no));
            lock::holder(&mut *place.control, key)
        })
    }

    /// Replaces the description of a run, which has learned more about itself.
    ///
    /// # Errors
    /// When no node has the run, or a ledger cannot be written.
    pub fn update_spec(&mut self, run_no: u16, spec_json: &str) -> Result<(), LoadError> {
        let mut updated = Err(LoadError::Restarted);
        for place in &mut self.places {
            match ledger::update_writer_spec(&mut *place.control, &place.dataset, run_no, spec_json) {
                // A ledger that does not have the run, as it was made later.
                Err(LoadError::Restarted) => {}
                other => {
                    other?;
                    let sql = |source| LoadError::sql("updating the run in pgfathom.writer", source);
                    place.control.release().map_err(sql)?;
                    updated = Ok(());
                }
            }
        }
        updated
    }

    /// Removes a run from all ledgers that has written nothing and will not begin: a run without an end would be taken for a killed one.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    pub fn withdraw(&mut self, run_no: u16) -> Result<(), LoadError> {
        let sql = |source| LoadError::sql("removing the run from pgfathom.writer", source);
        for place in &mut self.places {
            let dataset = place.dataset.id;
            let delete = "delete from pgfathom.writer where dataset = $1 and run_no = $2 and not finished";
            place.control.execute(delete, &[&dataset, &i32::from(run_no)]).map_err(sql)?;
            place.control.release().map_err(sql)?;
        }
        Ok(())
    }

    /// Notes on every node that a run ended in order: what it did, and the transactions of each session. A node that was lost during the run is connected
    /// to again. One that stays away is passed over as long as another one takes it down; if none does, all are tried again for [`FINISH_LIMIT`]: a node
    /// that has just been started catches up first.
    ///
    /// # Errors
    /// When no node has the run, or none can be written.
    pub fn finish(&mut self, run_no: u16, spec_json: &str, transactions: &[u64]) -> Result<(), LoadError> {
        let begin = Instant::now();
        loop {
            match self.finish_once(run_no, spec_json, transactions) {
                Err(_) if begin.elapsed() < FINISH_LIMIT => std::thread::sleep(FINISH_PAUSE),
                result => return result,
            }
        }
    }

    fn finish_once(&mut self, run_no: u16, spec_json: &str, transactions: &[u64]) -> Result<(), LoadError> {
        let finished = self.places.iter_mut().map(|place| {
            // Only the second statement makes the run a finished one; cut in between, it is judged like a killed one.
            let send = |control: &mut Control, dataset: &Dataset| {
                ledger::update_writer_spec(&mut **control, dataset, run_no, spec_json)?;
                ledger::finish_writer(&mut **control, dataset, run_no, transactions)?;
                control
                    .release()
                    .map_err(|source| LoadError::sql("ending the run in pgfathom.writer", source))
            };
            if !place.control.is_closed() && send(&mut place.control, &place.dataset).is_ok() {
                return Ok(());
            }
            place.control = crate::connections::shared(&place.spec)?;
            place.marks.clear();
            send(&mut place.control, &place.dataset)
        });
        some(finished.collect())
    }
}

/// How long a session may wait for a server connection of a pool.
const POOL_LIMIT: Duration = Duration::from_secs(5);

/// Refuses a pool of transactions that has one server connection: the mark of a run that writes keeps it until the end of the run.
///
/// # Errors
/// [`LoadError::PoolOfOne`], and when the server cannot be queried.
pub fn check_pool(control: &mut Control, spec: &ConnSpec) -> Result<(), LoadError> {
    if !control.is_shared() {
        return Ok(());
    }
    let sql = |source| LoadError::sql("testing the size of the pool", source);
    // The transaction of this query stays open, and keeps its server connection.
    control.query_one("select 1", &[]).map_err(sql)?;
    let is_answered = hot::is_answered(&spec.clone().with_pinned(Pinned::Nothing), POOL_LIMIT);
    control.release().map_err(sql)?;
    match is_answered.map_err(LoadError::connect)? {
        true => Ok(()),
        false => Err(LoadError::PoolOfOne { seconds: POOL_LIMIT.as_secs() }),
    }
}

/// How long the end of a run is tried to be noted, and the pause between two attempts.
const FINISH_LIMIT: Duration = Duration::from_secs(20);
const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// Well if any of them is.
fn some(results: Vec<Result<(), LoadError>>) -> Result<(), LoadError> {
    let any = results.iter().any(Result::is_ok);
    match results.into_iter().find_map(Result::err) {
        Some(error) if !any => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
