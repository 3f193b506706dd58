//! Logs in other languages, and lines with a wrong prefix.

use super::*;
use record::watched::{Missing, Sampled};

/// The missing items after a read, and the events.
fn look(follower: &mut Follower, reported: &mut Recorded) -> (Vec<Missing>, Vec<event::Event>) {
    let mut batch = Batch::default();
    follower.read(&tick(), 0, reported, &mut batch);
    let missing = batch.lines.into_iter().filter_map(|(_, _, line)| match line {
        Sampled::Missing(missing) => Some(missing),
        _ => None,
    });
    (missing.collect(), batch.events)
}

fn style(line_prefix: &str, language: &str) -> Style {
    Style { line_prefix: line_prefix.to_string(), language: language.to_string(), is_terse: false }
}

fn styled(path: &Path, format: Format, line_prefix: &str, language: &str) -> Follower {
    let source = Source { path: path.to_path_buf(), format, collected_in: None };
    Follower::new(Place::Node("n1".to_string()), source, style(line_prefix, language))
}

#[test]
fn a_terse_log_is_reported_until_it_has_contexts() {
    let folder = Folder::new("origins");
    let path = folder.0.join("log");
    append(&path, "");
    let (mut follower, mut reported) = (styled(&path, Format::Stderr, "%m [%p] ", "C"), Recorded::default());
    follower.restyle(Style { is_terse: true, ..follower.style.clone() });
    let (missing, _) = look(&mut follower, &mut reported);
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].what == ORIGINS && missing[0].lost.contains("deadlocks"), "{missing:?}");
    assert!(missing[0].why.contains("ALTER SYSTEM SET log_error_verbosity"), "{missing:?}");
    // A collected log has the contexts in any case.
    let mut collected = styled(&path, Format::Csv, "", "C");
    collected.restyle(Style { is_terse: true, ..collected.style.clone() });
    assert_eq!(look(&mut collected, &mut Recorded::default()).0, []);
}

#[test]
fn a_russian_log_is_read_by_its_structure_and_losses_are_reported() {
    let folder = Folder::new("russian");
    let path = folder.0.join("log");
    append(&path, "");
    let (mut follower, mut reported) =
        (styled(&path, Format::Stderr, "%m [%p] %e ", "ru_RU.UTF-8"), Recorded::default());
    // It is reported before the first line: a log without lines must not look like an English one.
    let (missing, _) = look(&mut follower, &mut reported);
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].what == "words of the server log" && missing[0].why.contains("lc_messages is ru_RU.UTF-8")
    );
    assert!(
        missing[0].why.contains("ALTER SYSTEM SET lc_messages") && missing[0].lost.contains("checkpoints")
    );
    assert!(!follower.is_telling(), "checkpoints must come from counters");
    let head = |pid: u32, state: &str| format!("{}.000 MSK [{pid}] {state} ", now_in(3));
    append(
        &path,
        &format!(
            "{0}ОШИБКА:  обнаружена взаимоблокировка\n{0}ПОДРОБНОСТИ:  Процесс 5 ожидает в режиме ShareLock блокировку \"транзакция 7\"; заблокирован процессом 6.\n\tПроцесс 6 ожидает процесс 5.\n{0}ПОДСКАЗКА:  Подробности запроса смотрите в протоколе сервера.\n{0}ОПЕРАТОР:  update t set v = 1\n",
            head(5, "40P01")
        ),
    );
    append(&path, &format!("{}СООБЩЕНИЕ:  начата контрольная точка: wal\n", head(9, "00000")));
    append(&path, &format!("{}ВАЖНО:  закрытие подключения по команде администратора\n", head(7, "57P01")));
    let (missing, events) = look(&mut follower, &mut reported);
    assert_eq!(missing, [], "it was reported");
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["deadlock", "server_log"], "{events:?}");
    assert!(events[0].more["detail"].as_str().is_some_and(|detail| detail.contains("процесс 5")));
    assert_eq!(events[0].more["statement"], "update t set v = 1");
    assert_eq!(
        (&events[1].more["severity"], &events[1].more["sqlstate"]),
        (&json!("FATAL"), &json!("57P01"))
    );
    // After the remedy messages are English.
    follower.restyle(style("%m [%p] ", "C"));
    append(&path, &format!("{}.000 UTC [9] LOG:  checkpoint starting: wal\n", now_in(0)));
    let (missing, events) = look(&mut follower, &mut reported);
    assert!(missing.len() == 1 && missing[0].why.is_empty(), "taken back: {missing:?}");
    assert_eq!(events[0].kind, event::CHECKPOINT);
    assert!(follower.is_telling());
}

#[test]
fn translated_severities_of_collected_logs_become_english_and_are_noticed() {
    let folder = Folder::new("german");
    let path = folder.0.join("log.csv");
    append(&path, "");
    // The server's own setting is English; a database has another one.
    let (mut follower, mut reported) = (styled(&path, Format::Csv, "", "en_US.UTF-8"), Recorded::default());
    assert_eq!(look(&mut follower, &mut reported), (vec![], vec![]));
    assert!(follower.is_telling());
    let time = format!("{}.500 CET", now_in(1));
    append(
        &path,
        &format!(
            "{time},\"bob\",\"laden\",77,\"[local]\",6638a1b2.4d,5,\"UPDATE\",{time},3/5,0,FEHLER,40P01,\"Verklemmung (Deadlock) entdeckt\",\"Prozess 77 wartet\",,,,,\"update t set v = 1\",,,\"psql\",\"client backend\",,0\n"
        ),
    );
    let (missing, events) = look(&mut follower, &mut reported);
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["deadlock"]);
    assert!(missing.len() == 1 && missing[0].why.contains("FEHLER"), "{missing:?}");
    assert!(!follower.is_telling());
}

#[test]
fn lines_without_the_prefix_are_reported() {
    let folder = Folder::new("odd");
    let path = folder.0.join("log");
    append(&path, "");
    // There is nothing between zone and process id, so they cannot be distinguished.
    let (mut follower, mut reported) = (styled(&path, Format::Stderr, "%m%p", "C"), Recorded::default());
    let line = || format!("{}.000 UTC5LOG:  checkpoint starting: time\n", now_in(0));
    append(&path, &line());
    assert_eq!(look(&mut follower, &mut reported), (vec![], vec![]), "one line may be another program's");
    for _ in 0..ODD_LINES_MIN {
        append(&path, &line());
    }
    let (missing, _) = look(&mut follower, &mut reported);
    assert!(missing.len() == 1 && missing[0].what == "lines of the server log", "{missing:?}");
    assert!(missing[0].why.contains("'%m%p'") && missing[0].why.contains("ALTER SYSTEM SET log_line_prefix"));
    assert!(!follower.is_telling());
    // Another prefix after a reload: it is used in the same file.
    follower.restyle(style("%m [%p] ", "C"));
    append(&path, &format!("{}.000 UTC [5] LOG:  checkpoint starting: time\n", now_in(0)));
    let (missing, events) = look(&mut follower, &mut reported);
    assert!(missing.len() == 1 && missing[0].why.is_empty(), "{missing:?}");
    assert_eq!(events[0].kind, event::CHECKPOINT);
    // Lines of other programs among those of the server do not matter.
    for _ in 0..ODD_LINES_MIN * 2 {
        append(&path, "cp: cannot stat '/archive': No such file or directory\n");
    }
    assert_eq!(look(&mut follower, &mut reported), (vec![], vec![]));
    assert!(follower.is_telling());
}
