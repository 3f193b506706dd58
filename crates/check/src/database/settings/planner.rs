//! Settings of the planner.

use crate::database::draft::{each, note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use watch::sql::json;

/// A random page of a disk without seeks costs about as much as the next one.
const RANDOM_PAGE_COST_SOLID: f64 = 1.1;
/// Above it, index scans on such a disk look too expensive.
const RANDOM_PAGE_COST_SOLID_MAX: f64 = 2.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.random_page_cost",
        area: Area::Settings,
        title: "random_page_cost against the kind of disk",
        limits: "above 2 on a disk without seek time (default 4, for spinning disks)",
        units: &[],
        needs: &[Need::DiskKind],
        why: "the planner prefers sequential scans although random reads are cheap",
        judge: random_page_cost,
    },
    Check {
        id: "settings.jit",
        area: Area::Settings,
        title: "jit",
        limits: "on is a note",
        units: &[],
        needs: &[],
        why: "compiling can take longer than a short statement on a table whose size is overestimated (PLAN-03 of explain measures it)",
        judge: jit,
    },
    Check {
        id: "settings.overrides",
        area: Area::Settings,
        title: "settings of single databases and roles",
        limits: "any is a note; one that weakens durability or turns planning methods off is a warning",
        units: &[Unit::Count],
        needs: &[],
        why: "they beat the configuration file for some sessions: what SHOW prints for one role is not what another one gets",
        judge: overrides,
    },
];

fn random_page_cost(node: &mut Node<'_>) -> Judged {
    let is_solid = node.machine.is_rotational == Some(false);
    let setting = node.setting("random_page_cost")?;
    let cost = setting.number().unwrap_or(0.0);
    if !is_solid || cost <= RANDOM_PAGE_COST_SOLID_MAX {
        return Ok(vec![pass(setting.words())]);
    }
    Ok(vec![
        warn("random_page_cost", format!("{}, and the disk has no seek time", setting.words()))
            .advice("set it near seq_page_cost; settings of a tablespace are possible, too")
            .run_all(setting.change(&RANDOM_PAGE_COST_SOLID.to_string())),
    ])
}

fn jit(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("jit")?;
    if !setting.is_on() {
        return Ok(vec![pass(setting.words())]);
    }
    let above = node.setting("jit_above_cost")?.words();
    Ok(vec![
        note("jit", format!("{}; {above}", setting.words()))
            .advice("for short transactions it may be off")
            .run_all(setting.change("off")),
    ])
}

/// Settings that decide about durability or take a method from the planner, with the value that does it.
const WEAKENING: &str = "(lower(setting) in ('synchronous_commit=off', 'synchronous_commit=local', 'zero_damaged_pages=on', 'ignore_checksum_failure=on')
    or lower(setting) like 'enable\\_%=off')";

fn overrides(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select coalesce(pg_catalog.quote_ident(d.datname), '') as database, coalesce(pg_catalog.quote_ident(r.rolname), '') as role,
               s.setting, {WEAKENING} weakens
             from pg_catalog.pg_db_role_setting o cross join pg_catalog.unnest(o.setconfig) s(setting)
               left join pg_catalog.pg_database d on d.oid = o.setdatabase left join pg_catalog.pg_roles r on r.oid = o.setrole"
        ),
        "weakens desc, 1, 2, 3",
    )?;
    let drafts = each(
        &found.rows,
        found.total,
        |row| {
            let (database, role) = (json::text(row, "database"), json::text(row, "role"));
            let whose = match (database.as_str(), role.as_str()) {
                ("", role) => format!("role {role}"),
                (database, "") => format!("database {database}"),
                (database, role) => format!("role {role} in database {database}"),
            };
            let setting = json::text(row, "setting");
            let name = setting.split('=').next().unwrap_or_default();
            let reset = match (database.as_str(), role.as_str()) {
                ("", role) => format!("ALTER ROLE {role} RESET {name};"),
                (database, "") => format!("ALTER DATABASE {database} RESET {name};"),
                (database, role) => format!("ALTER ROLE {role} IN DATABASE {database} RESET {name};"),
            };
            let claim = format!("{whose} has {setting}");
            if json::flag(row, "weakens") == Some(true) {
                warn(whose, claim).advice("remove it, or make sure that it is meant").run(reset)
            } else {
                note(whose, claim).advice("remove it, if it is not meant").run(reset)
            }
        },
        || pass("no database and no role has settings of its own"),
    );
    let total = found.total as f64;
    Ok(drafts.into_iter().map(|draft| draft.figure(total, Unit::Count)).collect())
}
