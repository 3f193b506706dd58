//! What remedies need to take effect: where a setting comes from, which triggers send NOTIFY, and who types CHECKPOINT.

use super::watched::{Watch, client, client_of, on_each};
use record::watched::{COLLATION_VERSION, NONE_NOTIFIES, SETTING_DEFAULT, SETTING_SOURCE, Sampled};

#[test]
fn the_file_of_a_setting_and_its_default_are_recorded() {
    on_each(&[("jit_above_cost", "100")], |server| {
        let mut watch = Watch::of(&server.spec());
        let mut value_of = |topic: &'static str| {
            watch.until("where the setting is", move |line| match line {
                Sampled::Fact(fact) if fact.topic == topic && fact.name == "jit_above_cost" => {
                    Some(fact.value.clone())
                }
                _ => None,
            })
        };
        let source = value_of(SETTING_SOURCE);
        let (file, line) = source.rsplit_once(':').expect("a file with a line");
        assert!(file.ends_with("/postgresql.conf") && line.parse::<u64>().is_ok(), "{source}");
        let mut watch = Watch::of(&server.spec());
        let default = watch.until("the default", |line| match line {
            Sampled::Fact(fact) if fact.topic == SETTING_DEFAULT && fact.name == "jit_above_cost" => {
                Some(fact.value.clone())
            }
            _ => None,
        });
        assert_eq!(default, "100000");
    });
}

#[test]
fn only_triggers_that_send_notify_are_listed_as_such() {
    on_each(&[], |server| {
        client(server, "setup")
            .batch_execute(
                "create table bell (id int primary key);
                 create function ring() returns trigger language plpgsql as $$ begin perform pg_notify('bell', new.id::text); return null; end $$;
                 create function count_it() returns trigger language plpgsql as $$ begin return new; end $$;
                 create trigger rings after insert on bell for each row execute function ring();
                 create trigger counts before insert on bell for each row execute function count_it();
                 create table silent (id int primary key);
                 create trigger counts before insert on silent for each row execute function count_it();
                 insert into bell values (1)",
            )
            .expect("makes the triggers");
        let mut watch = Watch::of(&server.spec());
        let table = watch.until("the table", |line| match line {
            Sampled::Table(table) if table.relation == "public.bell" => Some(table.clone()),
            _ => None,
        });
        assert_eq!(table.notifying_triggers, "rings(public.ring)");
        let silent = watch.seen.lines.iter().find_map(|(_, _, line)| match line {
            Sampled::Table(table) if table.relation == "public.silent" => {
                Some(table.notifying_triggers.clone())
            }
            _ => None,
        });
        assert_eq!(silent.as_deref(), Some(NONE_NOTIFIES));
        assert!(table.trigger_functions.contains("counts(public.count_it)"), "{}", table.trigger_functions);
    });
}

#[test]
fn a_session_that_types_checkpoint_is_recorded_although_it_is_idle() {
    on_each(&[], |server| {
        client(server, "setup")
            .batch_execute("create role svc_backup superuser login")
            .expect("makes the role");
        let mut job = client_of(server, "bkp-snap", "svc_backup");
        job.batch_execute("CHECKPOINT").expect("checkpoints");
        let mut watch = Watch::of(&server.spec());
        let session = watch.until("the session", |line| match line {
            Sampled::Session(session) if session.application == "bkp-snap" => Some(session.clone()),
            _ => None,
        });
        assert_eq!((session.user.as_str(), session.state.as_str()), ("svc_backup", "idle"));
        assert!(session.query.starts_with("CHECKPOINT"), "{}", session.query);
    });
}

/// The library that compares texts is another one than the one that the index was made with.
#[test]
fn collations_of_indexes_that_have_changed_are_recorded() {
    let tested = std::sync::atomic::AtomicUsize::new(0);
    on_each(&[], |server| {
        let mut setup = client(server, "setup");
        let found = "select collname::text from pg_collation where collversion = pg_collation_actual_version(oid) and collname = 'en-x-icu' \
                     and current_setting('server_version_num')::int >= 150000";
        // Releases before 15, and servers without ICU, have no versions.
        let Some(row) = setup.query_opt(found, &[]).expect("it is queried") else { return };
        let name: String = row.get(0);
        setup
            .batch_execute(&format!(
                "create table person (name text collate \"{name}\"); create index person_name on person (name);
                 create index person_other on person (name desc); update pg_collation set collversion = '1.5' where collname = '{name}'"
            ))
            .expect("makes the indexes");
        let mut watch = Watch::of(&server.spec());
        let value = watch.until("the collation", |line| match line {
            Sampled::Fact(fact) if fact.topic == COLLATION_VERSION => {
                Some((fact.name.clone(), fact.value.clone()))
            }
            _ => None,
        });
        assert!(value.0.ends_with("\"en-x-icu\""), "{value:?}");
        assert!(value.1.starts_with("1.5 -> ") && value.1.ends_with("; 2"), "{value:?}");
        tested.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(tested.into_inner() > 0, "no server here has versions of collations");
}
