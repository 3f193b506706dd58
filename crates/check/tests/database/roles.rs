//! What a role without privileges sees: unknown, with the reason, and never a pass.

use super::machine;
use check::database::{Expected, Need, Target};
use lab::throwaway::{Throwaway, installations};
use record::check::Verdict;
use testing::on_each;

#[test]
fn a_plain_role_sees_what_it_lacks_and_every_check_gives_an_item() {
    on_each(&installations(), |installation| {
        let server = Throwaway::start(installation, &[]).unwrap();
        server.execute("create role plain login; create table hidden (i int primary key); create sequence hidden_sequence; insert into hidden select generate_series(1, 5000)").unwrap();
        let target =
            Target { name: "n1".into(), spec: server.spec().with_user("plain"), machine: Some(machine()) };
        let items = check::database::check(std::slice::from_ref(&target), &Expected::default());
        // Without a plan, and on a primary, some have nothing to judge.
        let is_of_others = |known: &&check::database::Check| {
            [Need::Plan, Need::Standby].iter().any(|need| known.needs.contains(need))
        };
        for known in check::database::all().filter(|known| !is_of_others(known)) {
            let found: Vec<_> = items.iter().filter(|item| item.check == known.id).collect();
            assert!(!found.is_empty(), "{} gives nothing", known.id);
            let lacks = known
                .needs
                .iter()
                .any(|need| matches!(need, Need::Statistics | Need::Settings | Need::Superuser))
                || known.needs.iter().any(|need| {
                    [
                        Need::View("pg_catalog.pg_hba_file_rules"),
                        Need::View("pg_catalog.pg_file_settings"),
                        Need::View("pg_catalog.pg_statistic_ext_data"),
                    ]
                    .contains(need)
                });
            if lacks {
                assert!(
                    found.iter().all(|item| item.verdict == Verdict::Unknown && !item.why.is_empty()),
                    "{found:#?}"
                );
                assert!(
                    found[0].remedy.commands.iter().all(|command| command.starts_with("GRANT")),
                    "{found:#?}"
                );
            }
            assert!(!found.iter().any(|item| item.why.contains("the server refused")), "{found:#?}");
        }
        // The sequence is not readable: that is reported, and no sequence counts as read.
        let sequences: Vec<_> = items.iter().filter(|item| item.check == "schema.sequences").collect();
        assert!(
            sequences.iter().any(|item| item.verdict == Verdict::Unknown && item.why.contains("USAGE")),
            "{sequences:#?}"
        );
        assert!(!server.log().contains("ERROR"), "{}", server.log());

        // What the remedies grant is enough for their checks.
        let commands = |item: &record::check::Item| item.remedy.commands.clone();
        let lacking: Vec<_> = items
            .iter()
            .filter(|item| item.verdict == Verdict::Unknown)
            .filter(|item| commands(item).iter().any(|command| command.starts_with("GRANT")))
            .collect();
        assert!(lacking.len() > 5, "{lacking:#?}");
        for command in lacking.iter().flat_map(|item| commands(item)) {
            server.execute(&command).unwrap_or_else(|error| panic!("{command}: {error:?}"));
        }
        let items = check::database::check(&[target], &Expected::default());
        for lack in lacking {
            let after: Vec<_> = items.iter().filter(|item| item.check == lack.check).collect();
            let is_solved = |item: &&record::check::Item| item.verdict != Verdict::Unknown;
            assert!(!after.is_empty() && after.iter().all(is_solved), "{lack:#?} {after:#?}");
        }
    });
}
