//! What `run.json` has of the server's settings: those of the session that recorded them. What a role or a database sets for itself is not the server's.

use record::model::{Run, Setting};
use record::number;

/// Sources of values that the sessions of one role or database have, and the recording session among them.
const OF_SESSIONS: [&str; 5] = ["user", "database", "database user", "client", "session"];

/// Keeps the values that the server itself has, with their units, as the server shows them.
pub(super) fn as_the_server_has(run: &mut Run) {
    let Some(target) = run.target.as_mut() else { return };
    target.settings.retain(|setting| !OF_SESSIONS.contains(&setting.source.as_str()));
    for setting in &mut target.settings {
        setting.value = shown(setting);
        setting.unit = None;
    }
}

/// `16384` of `8kB` is `128MB`.
fn shown(setting: &Setting) -> String {
    match &setting.unit {
        Some(unit) => number::setting(&setting.value, Some(unit)).replace([' ', ','], ""),
        None => setting.value.clone(),
    }
}

/// A setting that differs from its default.
pub(super) fn setting<'a>(run: &'a Run, name: &str) -> Option<&'a str> {
    let settings = &run.target.as_ref()?.settings;
    settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::model::Target;

    #[test]
    fn a_value_has_its_unit_and_is_none_of_the_server_where_the_database_has_its_own() {
        let of = |name: &str, value: &str, unit: Option<&str>, source: &str| Setting {
            name: name.to_string(),
            value: value.to_string(),
            unit: unit.map(str::to_string),
            source: source.to_string(),
            default: None,
        };
        let settings = vec![
            of("work_mem", "5120", Some("kB"), "database"),
            of("maintenance_work_mem", "98304", Some("kB"), "user"),
            of("shared_buffers", "16384", Some("8kB"), "configuration file"),
            of("log_min_duration_statement", "0", Some("ms"), "configuration file"),
            of("checkpoint_timeout", "1800", Some("s"), "command line"),
            of("random_page_cost", "1.1", None, "configuration file"),
        ];
        let mut run = Run { target: Some(Target { settings, ..Target::default() }), ..Run::default() };
        as_the_server_has(&mut run);
        let found = |name: &str| setting(&run, name);
        assert_eq!((found("work_mem"), found("maintenance_work_mem")), (None, None));
        assert_eq!((found("shared_buffers"), found("checkpoint_timeout")), (Some("128MB"), Some("30min")));
        assert_eq!(
            (found("log_min_duration_statement"), found("random_page_cost")),
            (Some("0"), Some("1.1"))
        );
    }
}
