use super::*;

#[test]
fn lines_survive_writing_and_reading() {
    let wait = Wait {
        node: "n1".to_string(),
        backend: "client backend".to_string(),
        state: "active".to_string(),
        wait_type: WAIT_CPU.to_string(),
        wait_event: WAIT_CPU.to_string(),
        query_id: Some("-7".to_string()),
        sessions: 3,
    };
    let mut line = serde_json::to_value(&wait).expect("JSON");
    let more = line.as_object_mut().expect("an object");
    more.insert("t_us".to_string(), 5.into());
    more.insert("source".to_string(), Wait::SOURCE.into());
    more.insert("invented_later".to_string(), true.into());
    let sample = Sample::parse(&line.to_string()).expect("a sample");
    assert_eq!(Sampled::parse(&sample), Some(Sampled::Wait(wait)));
}

#[test]
fn what_is_not_known_is_absent_and_what_is_zero_is_present() {
    let server = Server { node: "n1".to_string(), deadlocks: Some(0), ..Server::default() };
    assert_eq!(serde_json::to_string(&server).expect("JSON"), r#"{"node":"n1","deadlocks":0}"#);
}

#[test]
fn every_source_has_a_name_of_its_own_and_begins_with_where_it_is_from() {
    let mut names: Vec<&str> = Sampled::ALL.iter().map(|(source, _)| *source).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Sampled::ALL.len());
    for (source, fields) in Sampled::ALL {
        assert!(matches!(fields[0], "node" | "host"), "{source}");
    }
}

#[test]
fn lines_of_others_are_not_ours() {
    for line in [r#"{"t_us":5,"source":"weather","rain_mm":3}"#, r#"{"t_us":5,"source":"client"}"#] {
        assert_eq!(Sampled::parse(&Sample::parse(line).expect("a sample")), None, "{line}");
    }
}
