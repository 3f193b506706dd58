//! Releases with known defects, out of support, or behind.

use crate::database::draft::{Draft, fail, note, pass, unknown, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;

/// The end of support of a major release: https://www.postgresql.org/support/versioning/
const END_OF_SUPPORT: &[(u64, &str)] = &[
    (9, "2021-11-11"),
    (10, "2022-11-10"),
    (11, "2023-11-09"),
    (12, "2024-11-21"),
    (13, "2025-11-13"),
    (14, "2026-11-12"),
    (15, "2027-11-11"),
    (16, "2028-11-09"),
    (17, "2029-11-08"),
    (18, "2030-11-14"),
];

/// The newest minor releases that this program knows, and their day. Release 18.5 was not published.
const NEWEST: &[(u64, u64)] =
    &[(10, 23), (11, 22), (12, 22), (13, 23), (14, 25), (15, 20), (16, 16), (17, 12), (18, 7)];
const NEWEST_AS_OF: &str = "2026-11-12";

/// A defect: what it does, the first minor release per major that has the fix, and what to look at after an update.
struct Defect {
    what: &'static str,
    fixed: &'static [(u64, u64)],
    endangers_data: bool,
    then: &'static str,
}

/// Defects that lose or corrupt data, or hand over the server; the source is the release note of each first fixed release
/// (https://www.postgresql.org/docs/release/).
const DEFECTS: &[Defect] = &[
    Defect {
        what: "several ways to corrupt indexes and incremental backups (release note 18.7)",
        fixed: &[(18, 7)],
        endangers_data: true,
        then: "read the entries about REINDEX in the release note, and take a new full backup",
    },
    Defect {
        what: "CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY may leave out rows that were updated meanwhile (release note 14.4)",
        fixed: &[(14, 4)],
        endangers_data: true,
        then: "after the update, rebuild every index that was made with CONCURRENTLY",
    },
    Defect {
        what: "CREATE INDEX CONCURRENTLY does not wait for prepared transactions (release notes 14.1, 13.5, 12.9, 11.14)",
        fixed: &[(14, 1), (13, 5), (12, 9), (11, 14)],
        endangers_data: true,
        then: "if max_prepared_transactions is above 0, rebuild indexes that were made with CONCURRENTLY",
    },
    Defect {
        what: "GIN indexes may be corrupted by concurrent updates (release notes 16.2, 15.6, 14.11, 13.14, 12.18)",
        fixed: &[(16, 2), (15, 6), (14, 11), (13, 14), (12, 18)],
        endangers_data: true,
        then: "rebuild GIN indexes that may be affected",
    },
    Defect {
        what: "VACUUM may loop without end after a standby with an old transaction reconnects (release notes 16.4, 15.8, 14.13)",
        fixed: &[(16, 4), (15, 8), (14, 13)],
        endangers_data: false,
        then: "",
    },
    Defect {
        what: "CVE-2023-5869: array values let a role run code in the server (release notes 16.1, 15.5, 14.10, 13.13, 12.17, 11.22)",
        fixed: &[(16, 1), (15, 5), (14, 10), (13, 13), (12, 17), (11, 22)],
        endangers_data: true,
        then: "",
    },
    Defect {
        what: "CVE-2024-7348: a role can make pg_dump of a superuser run its code (release notes 16.4, 15.8, 14.13, 13.16, 12.20)",
        fixed: &[(16, 4), (15, 8), (14, 13), (13, 16), (12, 20)],
        endangers_data: true,
        then: "",
    },
    Defect {
        what: "CVE-2024-0985: REFRESH MATERIALIZED VIEW CONCURRENTLY of a superuser runs code of the view's owner (release notes 15.6, 14.11, 13.14, 12.18)",
        fixed: &[(15, 6), (14, 11), (13, 14), (12, 18)],
        endangers_data: true,
        then: "",
    },
    Defect {
        what: "CVE-2025-8714 and 8715: a dump can carry code that runs at the restore (release notes 17.6, 16.10, 15.14, 14.19, 13.22)",
        fixed: &[(17, 6), (16, 10), (15, 14), (14, 19), (13, 22)],
        endangers_data: true,
        then: "",
    },
];

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.known_defects",
        area: Area::State,
        title: "releases with known defects that lose data or hand over the server",
        limits: "any defect of the table in state/versions.rs (release notes, up to 2026-11-12) that this minor release has: fail if it endangers \
            data, else a warning",
        units: &[],
        needs: &[],
        why: "the defect is public, and an update of the minor release needs only new files and a restart",
        judge: defects,
    },
    Check {
        id: "state.support",
        area: Area::State,
        title: "support and minor release",
        limits: "out of support, or more than two minor releases behind the newest known one: warning; one or two behind: a note",
        units: &[Unit::Count],
        needs: &[],
        why: "a release out of support gets no fixes; each minor release fixes dozens of defects",
        judge: support,
    },
];

/// Major and minor of `server_version_num`; 9.6.24 is 9 and 0, because its minor release does not matter any more.
fn release(version: u64) -> (u64, u64) {
    if version >= 100_000 { (version / 10_000, version % 10_000) } else { (9, 0) }
}

fn defects(node: &mut Node<'_>) -> Judged {
    let (major, minor) = release(node.version());
    let shown = node.fact("release");
    let found = defects_of(major, minor);
    if !NEWEST.iter().any(|(known, _)| *known == major) {
        return Ok(vec![unknown(
            format!("the defects of release {shown} are not known"),
            format!("the table ends with the releases of {NEWEST_AS_OF}"),
        )]);
    }
    if found.is_empty() {
        return Ok(vec![pass(format!(
            "{shown} has none of {}",
            number::counted(DEFECTS.len() as u64, "known defect")
        ))]);
    }
    let is_other_build = node.is_other_build()?;
    Ok(found
        .into_iter()
        .map(|(defect, first)| {
            let claim = format!("{shown} has a defect that {major}.{first} fixes: {}", defect.what);
            let draft =
                if defect.endangers_data { fail(defect.what, claim) } else { warn(defect.what, claim) };
            let then = if defect.then.is_empty() { "nothing else is needed" } else { defect.then };
            draft.advice(if is_other_build {
                format!(
                    "ask the makers of this build whether they have taken that fix over, and for a build that has it: PostgreSQL's packages do not \
                     replace it; with the fix, {then}"
                )
            } else {
                format!("update to the newest {major}.x, and restart; {then}")
            })
        })
        .collect())
}

/// The defects of a release, with the minor release that has the fix.
fn defects_of(major: u64, minor: u64) -> Vec<(&'static Defect, u64)> {
    DEFECTS
        .iter()
        .filter_map(|defect| {
            let (_, first) = defect.fixed.iter().find(|(of, _)| *of == major)?;
            (minor < *first).then_some((defect, *first))
        })
        .collect()
}

fn support(node: &mut Node<'_>) -> Judged {
    let (major, minor) = release(node.version());
    let (shown, today) = (node.fact("release"), node.fact("today"));
    let is_other_build = node.is_other_build()?;
    let draft = supported((major, minor), &shown, &today, is_other_build);
    Ok(vec![draft])
}

/// Of `is_other_build` the makers decide about support and releases.
fn supported((major, minor): (u64, u64), shown: &str, today: &str, is_other_build: bool) -> Draft {
    const OTHER_BUILD: &str = "this is not PostgreSQL's own build: ask its makers how long they support it, and for their newest build";
    let end = END_OF_SUPPORT.iter().find(|(of, _)| *of == major).map(|(_, day)| *day);
    let newest = NEWEST.iter().find(|(of, _)| *of == major).map(|(_, minor)| *minor);
    // Days in this form are ordered as text.
    if let Some(end) = end.filter(|end| today > *end) {
        let claim = format!("{shown}: support of release {major} ended on {end}");
        return warn("release", claim).advice(if is_other_build {
            OTHER_BUILD
        } else {
            "plan the upgrade to a supported major release: pg_upgrade, or logical replication with little downtime"
        });
    }
    let Some(newest) = newest else {
        return unknown(
            format!("release {shown} is newer than this program"),
            format!("it knows the releases of {NEWEST_AS_OF}"),
        );
    };
    let behind = newest.saturating_sub(minor);
    let claim = format!(
        "{shown}; the newest known release of this line is {major}.{newest} ({NEWEST_AS_OF}), support ends on {}",
        end.unwrap_or("an unknown day")
    );
    let draft = match behind {
        0 => pass(claim),
        1 | 2 => note("release", claim),
        _ => warn("release", claim),
    };
    let draft = draft.figure(behind as f64, Unit::Count).at_most(2.0);
    if behind > 0 {
        draft.advice(if is_other_build {
            OTHER_BUILD
        } else {
            "install the newest minor release, and restart; standbys first"
        })
    } else {
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Verdict;

    #[test]
    fn a_release_has_the_defects_that_a_later_one_fixes() {
        let has = |major, minor, words: &str| {
            defects_of(major, minor).iter().any(|(defect, _)| defect.what.contains(words))
        };
        assert!(has(14, 3, "updated meanwhile") && !has(14, 4, "updated meanwhile"));
        assert!(has(13, 4, "prepared") && !has(13, 5, "prepared"));
        assert!(has(18, 4, "incremental") && !has(18, 7, "incremental"));
        assert!(defects_of(15, 20).is_empty() && defects_of(14, 25).is_empty());
        // The table of fixes must not run ahead of the table of releases.
        for (major, first) in DEFECTS.iter().flat_map(|defect| defect.fixed) {
            assert!(NEWEST.iter().any(|(of, newest)| of == major && first <= newest), "{major}.{first}");
        }
    }

    #[test]
    fn support_ends_on_a_day_and_minor_releases_are_counted() {
        let verdict =
            |major, minor, today: &str| supported((major, minor), "x", today, false).into_item().verdict;
        assert_eq!(verdict(14, 25, "2026-11-12"), Verdict::Pass);
        assert_eq!(verdict(14, 25, "2026-11-13"), Verdict::Warn);
        assert_eq!(verdict(9, 0, "2026-01-01"), Verdict::Warn);
        assert_eq!(verdict(18, 7, "2026-12-01"), Verdict::Pass);
        assert_eq!(verdict(18, 5, "2026-12-01"), Verdict::Note);
        assert_eq!(verdict(18, 4, "2026-12-01"), Verdict::Warn);
        assert_eq!(verdict(23, 0, "2031-12-01"), Verdict::Unknown);
        for (today, minor) in [("2026-11-13", 25), ("2026-11-12", 2)] {
            let of =
                |is_other_build| supported((14, minor), "x", today, is_other_build).into_item().remedy.text;
            assert!(of(true).contains("its makers") && !of(false).contains("makers"), "{}", of(true));
        }
    }
}
