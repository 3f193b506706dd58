//! Settings of the planner that the role of a statement has for itself: watch plans it with those of another.

use super::Planned;
use crate::case::Case;
use record::watched::OWN_SETTING;

/// What the planner is set to for a role that may execute the statement and not for that of watch: the setting, its value, and whose it is.
pub(super) fn own_setting<'a>(case: &'a Case, planned: &Planned<'_>) -> Option<(&'a str, &'a str, &'a str)> {
    let own = case.facts(OWN_SETTING).filter(|fact| fact.node == planned.time.node);
    let is_of_planner = |name: &str, value: &str| match name {
        "plan_cache_mode" => value == "force_generic_plan",
        "effective_cache_size" => true,
        _ => {
            name.starts_with("enable_") && value == "off"
                || name.ends_with("_page_cost")
                || name.starts_with("cpu_")
        }
    };
    let settings = own.filter_map(|fact| {
        let (name, owner) = fact.name.split_once(" of ")?;
        Some((name, fact.value.as_str(), owner))
    });
    settings.into_iter().find(|(name, value, owner)| {
        let is_role = owner.starts_with("role ");
        is_role
            && is_of_planner(name, value)
            && case.may_execute(&planned.time.node, owner, planned.statement)
    })
}
