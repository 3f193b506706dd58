use super::lines::FIELDS_MAX;
use super::*;

pub(crate) fn fed(lines: &[&str]) -> Case {
    let mut case = Case::default();
    for line in lines {
        case.take(Sample::parse(line).expect("a sample"));
    }
    case
}

#[test]
fn lines_become_series_of_things() {
    let case = fed(&[
        r#"{"t_us":1000000,"interval_us":1000000,"source":"disk","host":"h1","device":"nvme0n1","member_of":"md0","writes":100}"#,
        r#"{"t_us":2000000,"interval_us":1000000,"source":"disk","host":"h1","device":"nvme0n1","member_of":"md0","writes":300}"#,
        r#"{"t_us":2000000,"interval_us":1000000,"source":"disk","host":"h2","device":"nvme0n1","writes":7}"#,
    ]);
    let disks: Vec<(&str, &str, Option<f64>)> =
        case.things("disk").map(|disk| (disk.place, disk.name, disk.lines.rate("writes"))).collect();
    assert_eq!(disks, [("h1", "nvme0n1", Some(200.0)), ("h2", "nvme0n1", Some(7.0))]);
    assert_eq!(case.at("disk", "h1").next().expect("one").lines.word("member_of"), "md0");
    assert_eq!(case.things("net").count(), 0);
}

#[test]
fn the_latest_facts_and_gaps_are_kept() {
    let case = fed(&[
        r#"{"t_us":1,"source":"fact","node":"n1","topic":"setting","name":"wal_level","value":"replica"}"#,
        r#"{"t_us":2,"source":"fact","node":"n1","topic":"setting","name":"wal_level","value":"logical"}"#,
        r#"{"t_us":1,"source":"missing","host":"h1","what":"edac","why":"no such file","lost":"memory errors"}"#,
        r#"{"t_us":1,"source":"missing","host":"h1","what":"perf","why":"no permission","lost":"stacks"}"#,
        r#"{"t_us":2,"source":"missing","host":"h1","what":"edac","why":"","lost":""}"#,
    ]);
    assert_eq!(case.setting("n1", "wal_level"), Some("logical"));
    assert_eq!(case.setting("n2", "wal_level"), None);
    assert_eq!(case.setting_at("n1", "wal_level", 1), Some("replica"));
    assert_eq!(case.setting_at("n1", "wal_level", 2), Some("logical"));
    assert_eq!(case.setting_at("n2", "wal_level", 1), None);
    assert_eq!(case.gaps.iter().map(|gap| gap.what.as_str()).collect::<Vec<_>>(), ["perf"]);
}

#[test]
fn things_beyond_the_limit_are_counted_and_left_out() {
    let mut case = Case::default();
    for number in 0..THINGS_MAX + 5 {
        let line = format!(r#"{{"t_us":1,"source":"table","node":"n1","relation":"t{number}","bytes":1}}"#);
        case.take(Sample::parse(&line).expect("a sample"));
    }
    assert_eq!(case.things("table").count(), THINGS_MAX);
    assert_eq!(case.left_out["table"].len(), 5);
}

/// A recording may come from anywhere: names that no recording of ours has take no memory.
#[test]
fn fields_beyond_the_limit_are_counted_and_left_out() {
    let mut case = Case::default();
    for line in 0..3 {
        let fields = (0..FIELDS_MAX).map(|field| format!(r#","f{line}_{field}":{field}"#));
        let fields: String = fields.collect();
        let line = format!(r#"{{"t_us":1,"source":"table","node":"n1","relation":"t"{fields}}}"#);
        case.take(Sample::parse(&line).expect("a sample"));
    }
    let table = case.things("table").next().expect("one");
    assert_eq!(table.lines.numbers.len() + table.lines.words.len(), FIELDS_MAX);
    assert_eq!(case.fields_kept, FIELDS_MAX);
    assert_eq!(
        case.fields_dropped + FIELDS_MAX,
        3 * (FIELDS_MAX + 2),
        "the two names of each line are fields, too"
    );
}

#[test]
fn the_fields_that_name_things_are_fields_of_their_lines() {
    for (source, fields) in KEYS {
        let Some((_, known)) = record::watched::Sampled::ALL.iter().find(|(name, _)| *name == source) else {
            assert_eq!(source, "node", "no such source");
            continue;
        };
        for field in fields {
            assert!(known.contains(field), "{source}.{field}");
        }
    }
}
