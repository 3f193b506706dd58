//! `-b documents` and `-b documents-tx`: their names, flags and tables, and the figures that they report.

use postgres::Client;
use record::benchmark::{Benchmark as Found, Figure};
use record::summary::Summary;
use run::drive::Account;
use run::verdict::Opinion;

use super::content::Documents;
use super::dataset::SIZE_PARAMETER;
use super::run::{Documented, DocumentsRun, Draws, FILL, NAME, NAME_TX, items};
use super::size::Sizes;
use super::writer::Writing;
use crate::driving::{
    About, Builtin, Family, Flag, Given, Kind, Prepared, Refusal, ServerAudit, Tables, failed,
};

/// Statements of an explicit transaction, unless the flag changes it, and at most.
const STATEMENTS_DEFAULT: u64 = 10;
const STATEMENTS_MAX: u64 = 1_000;

/// `-b documents` and `-b documents-tx`.
#[derive(Debug)]
pub struct DocumentsFamily;

const SIZE_FLAG: &str = "document-size";
const SIZE_EXAMPLE: &str = "1kB..20MB";
const STATEMENTS_FLAG: &str = "statements-per-transaction";

const ABOUT: About = About {
    title: "documents",
    filled_by: "load documents",
    fill: FILL,
    builtins: &[
        Builtin {
            name: NAME,
            about: "JSON documents: 50 % read, 30 % update, 20 % insert, each in a separate transaction",
        },
        Builtin { name: NAME_TX, about: "the same, ten statements between BEGIN and COMMIT" },
    ],
    flags: &[
        Flag {
            long: SIZE_FLAG,
            kind: Kind::Text("SIZE"),
            help: "Sizes of documents that are written into a table that pgfathom did not load, as 20MB or 1kB..20MB [default: 1kB..20MB]",
            excludes: &[],
        },
        Flag {
            long: STATEMENTS_FLAG,
            kind: Kind::Text("N"),
            help: "Statements of a transaction of documents-tx, at most 1000 [default: 10]",
            excludes: &[],
        },
    ],
    heading: About::HEADING,
    examples: &[(
        "-b documents@1 -b documents-tx@1 ...",
        "what autocommit costs on documents of up to 20 MB",
    )],
};

impl Family for DocumentsFamily {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, given: &Given<'_>) -> Result<(), Refusal> {
        given.flag(SIZE_FLAG, Sizes::DEFAULT, SIZE_EXAMPLE)?;
        statements(given).map(drop)
    }

    fn tables(&self, client: &mut Client) -> Result<Tables, Refusal> {
        Ok(vec![(Some(schema(client)?), NAME)])
    }

    fn prepare(
        &self,
        mix: &[(&'static str, u64)],
        given: &Given<'_>,
        client: &mut Client,
    ) -> Result<Prepared, Refusal> {
        let schema = schema(client)?;
        let known = ABOUT.dataset(client, NAME)?;
        let sql = format!(
            "select min(doc_id)::int8, max(doc_id)::int8 from {}",
            load::ledger::qualified(&schema, NAME)
        );
        let row = client.query_one(&sql, &[]).map_err(|error| failed("look for documents", error))?;
        let (Some(first), Some(last)) = (row.get::<_, Option<i64>>(0), row.get::<_, Option<i64>>(1)) else {
            return Err(Refusal::new("the table documents is empty").with_hint(FILL));
        };
        let all = (last - first + 1) as u64;
        let count = match &known {
            Some(dataset) => dataset.rows.min(all),
            // What sessions of other runs have inserted has gaps, and a document that is not there is an error.
            None => {
                let sql = format!(
                    "select min(d.doc_id)::int8 from {0} d where not exists (select 1 from {0} n where n.doc_id = d.doc_id + 1)",
                    load::ledger::qualified(&schema, NAME)
                );
                let row = client.query_one(&sql, &[]).map_err(|error| failed("look for documents", error))?;
                (row.get::<_, i64>(0) - first + 1) as u64
            }
        };
        let sizes = sizes(given, known.as_ref(), client)?;
        let seed = known.as_ref().map_or(given.seed, |dataset| dataset.spec.seed);
        let workload = DocumentsRun {
            schema: schema.clone(),
            documents: Documents::new(seed, sizes),
            // Behind what is there; a run that is entered in a ledger gets a range of its own.
            draws: Draws {
                first: first as u64,
                count,
                first_insert: last as u64 + 1,
                sessions: given.sessions,
            },
            items: items(mix, statements(given)?),
        };
        let dataset = record::model::Dataset {
            name: NAME.into(),
            format_version: known.as_ref().map_or(0, |dataset| dataset.format),
            seed,
            rows: count,
            parameters: [
                ("schema".to_owned(), schema.into()),
                ("written_sizes".to_owned(), sizes.to_string().into()),
            ]
            .into_iter()
            .collect(),
        };
        let prepared = Prepared::new(workload.clone(), dataset, Reported);
        Ok(match known {
            Some(dataset) => Prepared { writer: Some(Box::new(Writing { workload, dataset })), ..prepared },
            None => prepared,
        })
    }
}

/// The sizes of documents that are written. Those of a loaded dataset are fixed: an update of another size would be damage to `verify`, which computes
/// each document from its number and version.
fn sizes(
    given: &Given<'_>,
    known: Option<&load::ledger::Dataset>,
    client: &mut Client,
) -> Result<Sizes, Refusal> {
    let typed = given.flag(SIZE_FLAG, Sizes::DEFAULT, SIZE_EXAMPLE)?;
    let Some(dataset) = known else { return Ok(typed) };
    let parameters = load::ledger::parameters(client, dataset.id)
        .map_err(|error| Refusal::new("cannot read the ledger").because(error))?;
    let recorded = parameters.get(SIZE_PARAMETER).and_then(|text| text.parse().ok());
    let recorded: Sizes = recorded.ok_or_else(|| {
        Refusal::new("the ledger does not record how large the documents of this database are")
            .with_hint("load them again: pgfathom load documents --restart")
    })?;
    if given.flags.contains_key(SIZE_FLAG) && typed != recorded {
        return Err(Refusal::new(format!(
            "--{SIZE_FLAG} {typed}: the documents of this database were loaded with sizes of {recorded}"
        ))
        .with_hint(format!(
            "omit --{SIZE_FLAG}, or load others: pgfathom load documents --restart --{SIZE_FLAG} {typed}"
        )));
    }
    Ok(recorded)
}

fn statements(given: &Given<'_>) -> Result<u64, Refusal> {
    let count = given.flag(STATEMENTS_FLAG, STATEMENTS_DEFAULT, "10")?;
    match (1..=STATEMENTS_MAX).contains(&count) {
        true => Ok(count),
        false => {
            Err(Refusal::new(format!("--{STATEMENTS_FLAG} {count}: 1 to {STATEMENTS_MAX} are possible"))
                .with_hint(format!("write it as --{STATEMENTS_FLAG} 10")))
        }
    }
}

fn schema(client: &mut Client) -> Result<String, Refusal> {
    ABOUT
        .schema(client, NAME, NAME)?
        .ok_or_else(|| Refusal::new("this database holds no table documents").with_hint(FILL))
}

/// Writes the figures of documents. Each document that is read is checked when it comes; the server gets no further query.
#[derive(Debug)]
struct Reported;

impl ServerAudit for Reported {
    fn before(&mut self, _: &mut Client) -> Result<(), Refusal> {
        Ok(())
    }

    fn after(&mut self, _: &mut Client) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge(&self, account: &Account, _: usize, summary: &mut Summary, _: &mut Opinion) {
        let sums = account.posted.measured.audits.of::<Documented>();
        let seconds = account.measured().as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut figures = vec![
            Figure::new("documents read", rate(sums.read), "documents/s"),
            Figure::new("documents written", rate(sums.written), "documents/s"),
            Figure::new("bytes read", rate(sums.read_bytes) / 1e6, "MB/s"),
            Figure::new("bytes written", rate(sums.written_bytes) / 1e6, "MB/s"),
        ];
        if let Some(commits) = sums.commits.filter(|commits| !commits.is_empty()) {
            figures.push(Figure::new("COMMIT, mean", commits.mean_us() / 1e3, "ms"));
            figures.push(Figure::new("COMMIT, p99", commits.quantile_us(0.99) as f64 / 1e3, "ms"));
        }
        summary.benchmarks.push(Found { name: "documents".into(), figures, ..Found::default() });
    }
}
