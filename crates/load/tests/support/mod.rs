//! What the live tests share: every PostgreSQL found, and the proof that a table is exactly the dataset.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use connect::ConnSpec;
use data::ycsb::{Compressible, FIELD_COUNT, Judgement, KeyOrder, Spec, Table, Version};
use engines::Cluster;
use lab::throwaway::{Installation, Throwaway, installations};
use load::progress::LoadEvent;
use load::verify::{Subject, VerifyError, VerifyOptions, VerifyReport};
use load::{LoadError, LoadReport, Observer, Progress, Stop};
use postgres::Client;
use record::ProgressSample;
use workloads::ycsb::dataset as ycsb;

pub(crate) use asked::Options;

pub(crate) mod asked;
pub(crate) mod cluster;
pub(crate) mod random;
pub(crate) mod tpcc;

/// Runs `test` against every PostgreSQL found, at once.
pub(crate) fn each_postgres(test: impl Fn(&Installation) + Sync) {
    testing::on_each(&installations(), test);
}

/// Verifies the table of YCSB that a database holds.
pub(crate) fn verify_ycsb(target: &ConnSpec, deep: bool) -> Result<VerifyReport, VerifyError> {
    verify_ycsb_on(&Cluster::single(target.clone()), &VerifyOptions::new(deep, 2, &Stop::new()))
}

/// The same of a cluster.
pub(crate) fn verify_ycsb_on(
    cluster: &Cluster,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let subject = Subject { name: ycsb::NAME, find: &|client| workloads::ycsb::DATASET.find(client) };
    load::verify::run(cluster, &subject, options, &mut |_| {})
}

/// An error with its causes.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A cluster with small memory.
pub(crate) fn start(installation: &Installation) -> Throwaway {
    Throwaway::start(installation, &[]).expect("a throwaway cluster starts")
}

pub(crate) fn spec(seed: u64) -> Spec {
    Spec { seed, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
}

/// A load with small chunks.
pub(crate) fn options(rows: u64, partitions: u32) -> Options {
    Options {
        partitions: Some(partitions),
        chunk_rows: Some(97),
        reconnect_limit: Duration::from_secs(60),
        ..Options::new(rows, spec(1))
    }
}

/// Remembers what it was told.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    pub(crate) events: Vec<LoadEvent>,
    pub(crate) last: Option<Progress>,
    pub(crate) samples: Vec<ProgressSample>,
    /// For those who wait for a word while the load goes on: messages of events, and the phase of each line of progress.
    pub(crate) heard: Heard,
}

/// What was heard so far.
#[derive(Clone, Default, Debug)]
pub(crate) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Waits for a line that holds this.
    pub(crate) fn wait_for(&self, what: &str) {
        testing::wait_for(what, || self.0.lock().unwrap().iter().any(|line| line.contains(what)));
    }
}

impl Observer for Notes {
    fn progress(&mut self, progress: &Progress, sample: &ProgressSample, _: Duration) {
        let percent = progress.percent.map_or("not known", |_| "known");
        self.heard.add(format!("progress {:?}, percent {percent}", progress.phase));
        self.last = Some(progress.clone());
        self.samples.push(sample.clone());
    }

    fn event(&mut self, event: &LoadEvent) {
        self.heard.add(event.message.clone());
        self.events.push(event.clone());
    }
}

/// Fills a server with the table of YCSB.
pub(crate) fn load_ycsb(
    target: &ConnSpec,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    load_ycsb_on(&Cluster::single(target.clone()), options, stop, observer)
}

/// The same of a cluster.
pub(crate) fn load_ycsb_on(
    cluster: &Cluster,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    let (dataset, options) = options.parts();
    load::load(cluster, &dataset, &options, stop, observer)
}

pub(crate) fn load(target: &ConnSpec, options: &Options) -> Result<LoadReport, LoadError> {
    load_ycsb(target, options, &Stop::new(), &mut Notes::default())
}

pub(crate) fn connect(target: &ConnSpec) -> Client {
    connect::control::connect(target).expect("the cluster accepts connections").into_client()
}

/// Proves that the table holds rows 0..rows, each once, each as loaded, each in its partition, and that the ledger agrees.
/// `finished`: keys and the mark of completion have to be there too.
pub(crate) fn assert_exact(target: &ConnSpec, rows: u64, partitions: u32, spec: &Spec, finished: bool) {
    let mut client = connect(target);
    let table = Table::new(spec.clone());
    let mut seen = vec![0u8; rows as usize];
    for row in client.query("select * from usertable", &[]).expect("the table can be read") {
        let key: &str = row.get(0);
        let number = table.row_of_key(key.as_bytes()).expect("a key of ours");
        assert!(number < rows, "row {number} of {rows} was never asked for");
        seen[number as usize] += 1;
        for column in 0..FIELD_COUNT {
            let value: &str = row.get(column + 1);
            assert_eq!(
                table.judge(number, column, value.as_bytes()),
                Judgement::Exact { version: Version::LOADED },
                "row {number} column {column}"
            );
        }
    }
    let missing = seen.iter().filter(|count| **count == 0).count();
    let doubled = seen.iter().filter(|count| **count > 1).count();
    assert_eq!((missing, doubled), (0, 0), "missing and doubled rows of {rows}");

    let dataset = load::ledger::find_dataset(&mut client, ycsb::NAME).unwrap().expect("a dataset");
    let totals = load::ledger::chunk_totals(&mut client, dataset.id).unwrap();
    assert_eq!(totals.rows, rows);
    assert_eq!(totals.bytes, rows * 1022);
    // The check that the ledger's documentation promises to anybody with psql.
    let same: Option<bool> = client
        .query_one(
            "select mod((select sum(hashtextextended(ycsb_key, 8816678312871386365)::numeric) from usertable)
                      - (select sum(checksum) from pgfathom.chunk), 18446744073709551616) = 0",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(same, (rows > 0).then_some(true), "the checksums of the ledger");
    let leaves: BTreeMap<String, i64> = client
        .query("select tableoid::regclass::text, count(*) from usertable group by 1", &[])
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let expected_leaves = if partitions > 1 { partitions as usize } else { 1 };
    assert!(leaves.len() <= expected_leaves, "{leaves:?}");
    if !finished {
        return;
    }
    assert!(dataset.loaded);
    // One valid primary key per leaf, adopted by the parent's, and no other index.
    let row = client
        .query_one(
            "select count(*) filter (where i.indisprimary and i.indisvalid), count(*),
                    count(h.inhrelid), count(*) filter (where c.relkind = 'r')
             from pg_index i join pg_class c on c.oid = i.indrelid
             left join pg_inherits h on h.inhrelid = i.indexrelid
             where c.relname like 'usertable%'",
            &[],
        )
        .unwrap();
    let counts: [i64; 4] = [row.get(0), row.get(1), row.get(2), row.get(3)];
    let expected = match partitions {
        0 | 1 => [1, 1, 0, 1],
        n => [i64::from(n) + 1, i64::from(n) + 1, i64::from(n), i64::from(n)],
    };
    assert_eq!(counts, expected, "primary keys, indexes, adopted ones, on leaves");
    let analyzed: i64 = client
        .query_one("select count(*) from pg_class where relname = 'usertable' and reltuples >= 0", &[])
        .unwrap()
        .get(0);
    assert!(analyzed == 1 || rows == 0, "statistics were gathered");
}
