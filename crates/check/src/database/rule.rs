//! A check: what it looks at, what it needs, and the function that judges. [`run`] applies the needs and turns refusals into items.

use super::draft::{Draft, unknown};
use super::node::Node;
use record::check::{Area, Item, Unit};
use watch::sql::session::Failed;

/// The result of a check.
pub(crate) type Judged = Result<Vec<Draft>, Failed>;

/// A check of a node.
#[derive(Debug)]
pub struct Check {
    /// Its stable name: `settings.max_wal_size`.
    pub id: &'static str,
    /// What it belongs to.
    pub area: Area,
    /// What it looks at.
    pub title: &'static str,
    /// When it warns or fails, with the source of the numbers.
    pub limits: &'static str,
    /// Units of its figures; none: it has no figure.
    pub units: &'static [Unit],
    /// Without these its verdict is unknown.
    pub needs: &'static [Need],
    /// Why it matters.
    pub why: &'static str,
    pub(crate) judge: fn(&mut Node<'_>) -> Judged,
}

/// What a check cannot do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A role that sees the sessions and statistics of others.
    Statistics,
    /// A role that sees all settings.
    Settings,
    /// A superuser.
    Superuser,
    /// A node that takes writes.
    Primary,
    /// A node that follows another one. On a primary the check has nothing to judge, and gives no item.
    Standby,
    /// At least this `server_version_num`.
    Since(u64),
    /// A view that exists and that the role may read.
    View(&'static str),
    /// The size of the host's memory.
    Memory,
    /// Whether the disk of the data spins.
    DiskKind,
    /// A plan. Without one the check has nothing to judge, and gives no item.
    Plan,
}

impl Need {
    /// For the manual.
    pub fn words(&self) -> String {
        match self {
            Need::Statistics => "pg_read_all_stats".to_string(),
            Need::Settings => "pg_read_all_settings".to_string(),
            Need::Superuser => "superuser".to_string(),
            Need::Primary => "a primary".to_string(),
            Need::Standby => "a standby".to_string(),
            Need::Since(version) => format!("PostgreSQL {}", version / 10_000),
            Need::View(view) => view.trim_start_matches("pg_catalog.").to_string(),
            Need::Memory => "the host's memory".to_string(),
            Need::DiskKind => "the kind of disk".to_string(),
            Need::Plan => "`--plan`".to_string(),
        }
    }

    /// What is missing and how to get it; `None` if it is there.
    fn lacks(self, node: &mut Node<'_>) -> Result<Option<(String, String)>, Failed> {
        let role = |name: &str, node: &Node<'_>| {
            let user = node.fact("role");
            Some((format!("role {user} is not a member of {name}"), format!("GRANT pg_monitor TO {user};")))
        };
        let sees_all = node.is("is_superuser");
        let plain = |why: &str| Some((why.to_string(), String::new()));
        Ok(match self {
            Need::Statistics if !sees_all && !node.is("reads_statistics") => role("pg_read_all_stats", node),
            Need::Settings if !sees_all && !node.is("reads_settings") => role("pg_read_all_settings", node),
            Need::Superuser if !sees_all => plain("only a superuser sees it"),
            Need::Primary if node.is("is_standby") => {
                plain("this node is a standby, which has no data about it: check the primary")
            }
            Need::Since(version) if node.version() < version => plain(&format!(
                "this server is {}, and shows it only since {}",
                node.fact("release"),
                version / 10_000
            )),
            Need::View(view) => return readable(view, node),
            Need::Memory if node.machine.memory_bytes.is_none() => {
                plain("the memory of the host is not known: check its host, too")
            }
            Need::DiskKind if node.machine.is_rotational.is_none() => {
                plain("the kind of disk is not known: check its host, too")
            }
            _ => None,
        })
    }
}

/// Views whose functions a plain role may not call: PostgreSQL checks that privilege of the role that reads the view.
const FUNCTIONS: [(&str, &str); 2] = [
    ("pg_catalog.pg_file_settings", "pg_catalog.pg_show_all_file_settings()"),
    ("pg_catalog.pg_hba_file_rules", "pg_catalog.pg_hba_file_rules()"),
];

/// Whether a view is there and readable, without a refusal in the server's log.
fn readable(view: &'static str, node: &mut Node<'_>) -> Result<Option<(String, String)>, Failed> {
    let function = FUNCTIONS.iter().find(|(of, _)| *of == view).map(|(_, function)| *function);
    let may_call = function.map_or("true".to_string(), |function| {
        format!("pg_catalog.has_function_privilege('{function}', 'execute')")
    });
    let answer = node.query(&format!(
        "select pg_catalog.json_build_object('r', case when pg_catalog.to_regclass('{view}') is null then null
           else pg_catalog.has_table_privilege('{view}', 'select') and {may_call} end)::text"
    ))?;
    Ok(match answer["r"].as_bool() {
        Some(true) => None,
        Some(false) => {
            let user = node.fact("role");
            let call = function.map_or(String::new(), |function| {
                format!(" GRANT EXECUTE ON FUNCTION {function} TO {user};")
            });
            Some((
                format!("role {user} may not read {view}"),
                format!("GRANT SELECT ON {view} TO {user};{call}"),
            ))
        }
        None => Some((format!("this server has no {view}"), String::new())),
    })
}

/// Runs a check on a node.
///
/// # Errors
/// When the connection is gone.
pub(crate) fn run(check: &'static Check, node: &mut Node<'_>) -> Result<Vec<Item>, Failed> {
    if !applies(check, node) {
        return Ok(vec![]);
    }
    let judged = needs_then_judge(check, node);
    let drafts = match judged {
        Ok(drafts) if drafts.is_empty() => vec![unknown("not checked", "the check gave no result")],
        Ok(drafts) => drafts,
        Err(Failed::Refused { message, .. }) => {
            vec![unknown(format!("not checked: {}", check.title), format!("the server refused: {message}"))]
        }
        Err(gone) => return Err(gone),
    };
    Ok(drafts.into_iter().map(|draft| complete(check, node.name(), draft)).collect())
}

/// Whether there is anything to judge: a primary has no replay of its own.
fn applies(check: &Check, node: &Node<'_>) -> bool {
    node.is("is_standby") || !check.needs.contains(&Need::Standby)
}

fn needs_then_judge(check: &'static Check, node: &mut Node<'_>) -> Judged {
    for need in check.needs {
        if let Some((why, command)) = need.lacks(node)? {
            let draft = unknown(format!("not checked: {}", check.title), why);
            return Ok(vec![if command.is_empty() {
                draft
            } else {
                draft.advice("give the role what is missing").run(command)
            }]);
        }
    }
    (check.judge)(node)
}

/// Adds the node and the check.
fn complete(check: &'static Check, node: &str, draft: Draft) -> Item {
    let mut item = draft.into_item();
    debug_assert!(
        item.figure.is_none_or(|figure| check.units.contains(&figure.unit)),
        "unit of {}",
        check.id
    );
    item.check = check.id.to_string();
    item.area = check.area;
    item.node = Some(node.to_string());
    if item.why.is_empty() {
        item.why = check.why.to_string();
    }
    item
}

/// The item of a check that was not run because the connection is lost.
pub(crate) fn not_run(check: &'static Check, node: &str, why: &str) -> Item {
    complete(check, node, unknown(format!("not checked: {}", check.title), why))
}
