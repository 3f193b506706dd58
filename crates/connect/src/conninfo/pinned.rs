//! The settings that pgfathom fixes in its own sessions, whatever the role, the database or the environment set.
//!
//! Names without a schema are looked up along `search_path`. A role that may create objects in a schema of that path can offer a better match for the
//! argument types than PostgreSQL's own function or operator, which then runs with the privileges of the calling session. So sessions that
//! run our statements look up names in `pg_catalog` only; our tables are written with their schema. `pg_temp` is last in the path: if it were missing, it would
//! be searched first for tables and types.
//!
//! The owner of a database can also decide which role its sessions take (`ALTER DATABASE ... SET role`). A superuser's session that becomes the owner's that
//! way looks harmless, and any function of the owner can take the superuser's role back. So the role stays the one that connected, unless the user's own
//! options name another.
//!
//! The other settings change the content or the format of results.

use super::ConnSpec;
use crate::settings;

/// Which settings of a session pgfathom fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pinned {
    /// None: the session is as in psql. For statements that the user wrote.
    #[default]
    Nothing,
    /// The search path and the role. For our workloads: the user chooses isolation and the like.
    Names,
    /// Names, and everything that changes the meaning of a statement or of its answer.
    All,
}

/// The role of a session.
const ROLE: &str = "role";
/// Where names are looked up, and as whom.
const NAMES: &[(&str, &str)] = &[("search_path", "pg_catalog,pg_temp"), (ROLE, "none")];

/// Settings that change the meaning of a statement. PostgreSQL 9.4 and its relatives know every name, because an unknown one makes the connection fail.
const MEANING: &[(&str, &str)] = &[
    // For input, the order of day and month stays that of the user.
    ("datestyle", "ISO"),
    ("intervalstyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
    ("standard_conforming_strings", "on"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    // Only a warning shows that no standby has confirmed a commit.
    ("client_min_messages", "notice"),
    ("transform_null_equals", "off"),
    ("gin_fuzzy_search_limit", "0"),
    // Names that the catalog's functions print, as those of types and relations, are compared with ours.
    ("quote_all_identifiers", "off"),
    // Else NULL in an array that we send is a text.
    ("array_nulls", "on"),
];

impl Pinned {
    /// The settings, by name.
    pub fn settings(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (names, meaning): (&[_], &[_]) = match self {
            Pinned::Nothing => (&[], &[]),
            Pinned::Names => (NAMES, &[]),
            Pinned::All => (NAMES, MEANING),
        };
        names.iter().chain(meaning).copied()
    }
}

impl ConnSpec {
    /// The same with these settings fixed, and no others.
    #[must_use]
    pub fn with_pinned(mut self, pinned: Pinned) -> ConnSpec {
        self.pinned = pinned;
        self
    }

    /// The same for statements of ours.
    #[must_use]
    pub fn pinned(&self) -> ConnSpec {
        self.clone().with_pinned(Pinned::All)
    }

    /// The same with the pinned settings. A second call changes nothing.
    pub(crate) fn with_settings_applied(&self) -> ConnSpec {
        ConnSpec { session_settings: self.startup_settings(), ..self.clone() }
    }

    /// The initial settings of a session, which override [`ConnSpec::options`]: the user's, then the pinned ones.
    fn startup_settings(&self) -> Vec<(String, String)> {
        let is_role = |(name, value): &(String, String)| name.eq_ignore_ascii_case(ROLE) && value != "none";
        let names_role =
            settings::of_options(self).iter().any(is_role) || self.session_settings.iter().any(is_role);
        let pinned = || self.pinned.settings().filter(|(name, _)| !(names_role && *name == ROLE));
        let is_pinned = |name: &str| pinned().any(|(pinned, _)| pinned.eq_ignore_ascii_case(name));
        let users = self.session_settings.iter().filter(|(name, _)| !is_pinned(name)).cloned();
        users.chain(pinned().map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_beats_what_the_user_has_set() {
        let mut spec = ConnSpec::new("db", 5432, "u", "d");
        spec.session_settings = vec![
            ("Search_Path".to_owned(), "evil".to_owned()),
            ("datestyle".to_owned(), "German".to_owned()),
            ("geqo".to_owned(), "off".to_owned()),
        ];
        let found = |pinned| spec.clone().with_pinned(pinned).startup_settings();
        assert_eq!(found(Pinned::Nothing), spec.session_settings);
        let applied = spec.clone().with_pinned(Pinned::All).with_settings_applied();
        assert_eq!(applied.with_settings_applied(), applied);
        let value = |settings: &[(String, String)], name: &str| {
            let of_name: Vec<_> =
                settings.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).collect();
            assert!(of_name.len() < 2, "{name} once");
            of_name.first().map(|(_, value)| value.clone())
        };
        for (pinned, datestyle) in [(Pinned::Names, "German"), (Pinned::All, "ISO")] {
            let settings = found(pinned);
            assert_eq!(value(&settings, "search_path").as_deref(), Some("pg_catalog,pg_temp"));
            assert_eq!(value(&settings, "datestyle").as_deref(), Some(datestyle));
            assert_eq!(value(&settings, "geqo").as_deref(), Some("off"));
            assert_eq!(value(&settings, "role").as_deref(), Some("none"));
        }
    }

    #[test]
    fn the_role_that_the_user_names_beats_the_one_that_connected() {
        let mut spec = ConnSpec::new("db", 5432, "u", "d").pinned();
        let of = |spec: &ConnSpec| {
            let settings = spec.startup_settings();
            let roles: Vec<String> =
                settings.into_iter().filter(|(name, _)| name == "role").map(|(_, value)| value).collect();
            roles
        };
        assert_eq!(of(&spec), ["none"]);
        spec.options = Some("-c search_path=a -c role=owners".to_owned());
        assert_eq!(of(&spec), [""; 0]);
        spec.options = None;
        spec.session_settings = vec![("role".to_owned(), "owners".to_owned())];
        assert_eq!(of(&spec), ["owners"]);
        assert_eq!(of(&spec.with_settings_applied()), ["owners"]);
    }
}
