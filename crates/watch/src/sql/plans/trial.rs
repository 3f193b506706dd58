//! Changes that are tried by EXPLAIN alone: an index that `hypopg` pretends to have, and on request other settings. Nothing is changed on the server: the index
//! is in the memory of our session, the settings end with the transaction.

use super::{Known, Looked, NotPlanned, OWN_PATH, Open, answers, executed, explain, sql, tree, within};
use crate::sql::json::{flag, list, text};
use crate::sql::session::{Failed, Session};
use record::statement;
use record::watched::WhatIf;
use serde_json::Value;

/// Indexes that are tried for one plan.
const INDEXES_MAX: usize = 2;
/// A smaller table is scanned rightly.
const ROWS_MIN: f64 = 1_000.0;
/// Settings that are tried on request: name, and value.
const SETTINGS: [(&str, &str); 5] = [
    ("work_mem", "256MB"),
    ("enable_seqscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_hashjoin", "off"),
    ("random_page_cost", "1.1"),
];

/// An index to try.
struct Proposed {
    relation: String,
    columns: Vec<String>,
}

/// Tries what the plan gives reason for. A refusal is part of the result.
pub(super) fn all(
    session: &mut Session,
    looked: &Looked,
    known: &Known,
    tries_settings: bool,
) -> Result<Vec<WhatIf>, Failed> {
    let proposed = proposed(looked);
    if proposed.is_empty() && !tries_settings {
        return Ok(vec![]);
    }
    let tried = within(session, known, |session, open| {
        let mut lines = vec![];
        for index in &proposed {
            lines.push(try_index(session, open, looked, index)?);
        }
        if tries_settings {
            for (name, value) in SETTINGS {
                lines.push(try_setting(session, open, looked, name, value)?);
            }
        }
        Ok(lines)
    });
    match tried {
        Ok(lines) => Ok(lines),
        Err(
            NotPlanned::Why(why)
            | NotPlanned::Type(why)
            | NotPlanned::Locked(why)
            | NotPlanned::Unproved(why),
        ) => Ok(proposed
            .iter()
            .map(|index| WhatIf { why_not: why.clone(), ..line_of(looked, index) })
            .collect()),
        Err(NotPlanned::Gone(failed)) => Err(failed),
    }
}

/// Indexes for the columns that sequential scans filter by.
fn proposed(looked: &Looked) -> Vec<Proposed> {
    let mut found: Vec<Proposed> = vec![];
    for node in looked.nodes.iter().filter(|node| node.kind == "Seq Scan" && !node.filter.is_empty()) {
        let is_it =
            |table: &&Value| text(table, "schema") == node.schema && text(table, "name") == node.table;
        let Some(table) = list(&looked.details, "tables").iter().find(is_it) else { continue };
        let rows = table["rows"].as_f64().unwrap_or(0.0);
        let conditions = statement::conditions(&node.filter).unwrap_or_default();
        let values = |column: &str| table["values"][column].as_str()?.parse().ok();
        let columns = statement::narrowing(statement::index_columns(&conditions), &conditions, rows, values);
        let is_real = columns.iter().all(|column| table["columns"][column].is_string());
        let relation = text(table, "relation");
        if rows < ROWS_MIN
            || columns.is_empty()
            || !is_real
            || found.iter().any(|other| other.relation == relation)
        {
            continue;
        }
        found.push(Proposed { relation, columns });
    }
    found.truncate(INDEXES_MAX);
    found
}

fn line_of(looked: &Looked, index: &Proposed) -> WhatIf {
    WhatIf {
        database: looked.plan.database.clone(),
        query_id: looked.plan.query_id.clone(),
        hash: looked.plan.hash.clone(),
        kind: "index".to_string(),
        change: statement::index_command(&index.relation, &index.columns, true),
        relation: index.relation.clone(),
        cost_before: looked.plan.cost_total,
        ..WhatIf::default()
    }
}

fn try_index(
    session: &mut Session,
    open: &Open,
    looked: &Looked,
    index: &Proposed,
) -> Result<WhatIf, NotPlanned> {
    let line = line_of(looked, index);
    let schema = text(&open.names, "hypopg");
    if schema.is_empty() {
        let why_not = match flag(&open.names, "hypopg_there") {
            Some(true) => "CREATE EXTENSION hypopg; in this database lets it be tried",
            _ => {
                "hypopg is not installed on the server: its package lets it be tried (postgresql-NN-hypopg of Debian and Ubuntu, hypopg_NN of \
                    the PGDG for Red Hat)"
            }
        };
        return Ok(WhatIf { why_not: why_not.to_string(), ..line });
    }
    let command = statement::index_command(&index.relation, &index.columns, false);
    let command = sql::literal(command.trim_end_matches(';'));
    prepare_again(session, open)?;
    let tried = answers(
        session,
        open,
        &[
            format!("select {schema}.hypopg_reset()::pg_catalog.text"),
            format!("select indexname from {schema}.hypopg_create_index({command}::pg_catalog.text)"),
            executed(open, ""),
            format!(
                "select {schema}.hypopg_relation_size(indexrelid)::pg_catalog.text from {schema}.hypopg()"
            ),
            format!("select {schema}.hypopg_reset()::pg_catalog.text"),
        ],
    )?;
    let [_, name, plan, bytes, _] = tried.as_slice() else {
        return Ok(WhatIf { why_not: "hypopg returned no index".to_string(), ..line });
    };
    let (nodes, _) = tree::nodes(&serde_json::from_str(plan).unwrap_or(Value::Null));
    Ok(WhatIf {
        cost_after: nodes.first().and_then(|node| node.cost),
        used: Some(nodes.iter().any(|node| !name.is_empty() && node.index.contains(name))),
        bytes: bytes.parse().ok(),
        ..line
    })
}

fn try_setting(
    session: &mut Session,
    open: &Open,
    looked: &Looked,
    name: &str,
    value: &str,
) -> Result<WhatIf, NotPlanned> {
    session.plain(&format!("set local {name} = '{value}'"))?;
    let explained = again(session, open)?;
    session.plain(&format!("reset {name}"))?;
    let (nodes, _) = tree::nodes(&explained);
    Ok(WhatIf {
        database: looked.plan.database.clone(),
        query_id: looked.plan.query_id.clone(),
        hash: looked.plan.hash.clone(),
        kind: "setting".to_string(),
        change: format!("SET {name} = '{value}';"),
        cost_before: looked.plan.cost_total,
        cost_after: nodes.first().and_then(|node| node.cost),
        used: Some(tree::shape(&nodes) != looked.plan.hash),
        ..WhatIf::default()
    })
}

/// Plans the statement anew.
fn again(session: &mut Session, open: &Open) -> Result<Value, NotPlanned> {
    prepare_again(session, open)?;
    explain(session, open, &executed(open, ""))
}

/// Makes the server forget the plan that it has kept.
fn prepare_again(session: &mut Session, open: &Open) -> Result<(), NotPlanned> {
    session.plain(&format!(
        "deallocate pgfathom_plan; set local search_path = {}; prepare pgfathom_plan as {}; {OWN_PATH}",
        open.path, open.plain
    ))?;
    Ok(())
}
