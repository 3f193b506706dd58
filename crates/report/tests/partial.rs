//! Directories that are not whole: every view of them says what it can, names what is missing, and never panics.

// In a test a panic is the message.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use fixture::{Folder, Scene};
use serde_json::Value;
use std::fs;

const FILES: [&str; 4] = ["run.json", "samples.ndjson", "events.ndjson", "latency.hlog"];

fn views(folder: &Folder) -> (String, String, Value) {
    let json = serde_json::from_str(&report::json(folder.path()).unwrap()).unwrap();
    (report::html(folder.path()).unwrap(), report::text(folder.path()).unwrap(), json)
}

#[test]
fn each_missing_file_is_named_in_every_view() {
    for name in FILES {
        let folder = fixture::write(Scene::Single);
        fs::remove_file(folder.path().join(name)).unwrap();
        let (html, text, json) = views(&folder);
        let expected = format!("{name} is missing");
        assert!(html.contains(&expected) && text.contains(&expected), "{name}: {text}");
        assert!(json["missing"].to_string().contains(&expected), "{name}: {json}");
    }
}

#[test]
fn any_single_file_is_enough() {
    for kept in FILES {
        let folder = fixture::write(Scene::Single);
        for name in FILES.iter().filter(|name| **name != kept) {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        let (html, _, json) = views(&folder);
        assert!(html.contains("</html>"), "{kept}");
        // Transactions are known from each file that counts them.
        let transactions = json["transactions"].as_u64();
        match kept {
            "run.json" | "samples.ndjson" => assert_eq!(transactions, Some(272_146), "{kept}"),
            "latency.hlog" => assert!(transactions > Some(272_146), "without phases warm-up counts too"),
            _ => assert_eq!(transactions, None),
        }
    }
}

#[test]
fn a_killed_run_is_unknown_and_its_totals_come_from_samples() {
    let folder = fixture::write(Scene::Single);
    let path = folder.path().join("run.json");
    let mut run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    run["state"] = "running".into();
    run["steps"][0]["state"] = "running".into();
    run["steps"][0]["summary"] = serde_json::json!({"verb": "run", "name": "ycsb-a"});
    for field in ["types", "end_us"] {
        run["steps"][0].as_object_mut().unwrap().remove(field);
    }
    run.as_object_mut().unwrap().remove("ended_us");
    fs::write(&path, run.to_string()).unwrap();
    let (html, text, json) = views(&folder);
    assert!(html.contains(">UNKNOWN<") && text.contains("UNKNOWN"), "{text}");
    assert!(text.contains("the run did not end") && text.contains("computed from samples"), "{text}");
    assert_eq!(json["transactions"], 272_146);
    assert_eq!(json["latency_us"]["p50"], 308);
    assert_eq!(json["valid"], false, "nobody said that it was");
}

/// Three marks: valid, invalid, and that there is a reason why this is not known.
#[test]
fn a_verdict_that_is_open_is_not_called_invalid() {
    let marks = |verb: &str, reason: &str, promises: Value| {
        let folder = fixture::write(Scene::Single);
        let path = folder.path().join("run.json");
        let mut run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let verdict = serde_json::json!({"valid": reason.is_empty(), "reasons": [reason], "notes": []});
        run["verb"] = verb.into();
        run["verdict"] = verdict.clone();
        run["steps"][0]["verb"] = verb.into();
        run["steps"][0]["verdict"] = verdict;
        run["steps"][0]["promises"] = promises;
        fs::write(&path, run.to_string()).unwrap();
        let (html, text, _) = views(&folder);
        ["VALID", "INVALID", "CANNOT TELL"].map(|mark| {
            (html.contains(&format!(">{mark}<")) || html.contains(&format!("</i>{mark}<")))
                && text.contains(mark)
        })
    };
    let none = || serde_json::json!([]);
    assert_eq!(marks("verify", "cannot tell: m2 lacks 24 bytes of m1", none()), [false, false, true]);
    assert_eq!(marks("verify", "12 rows are missing", none()), [false, true, false]);
    let untested = serde_json::json!([{"promise": "money is kept", "standing": "not_tested", "why": "m2 does not receive from m1"}]);
    assert_eq!(marks("prove", "", untested), [false, false, true]);
}

#[test]
fn a_later_schema_version_is_refused_and_unknown_fields_are_not() {
    let folder = fixture::write(Scene::Single);
    let path = folder.path().join("run.json");
    let mut run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    run["steps"][0]["wormholes"] = 3.into();
    fs::write(&path, run.to_string()).unwrap();
    assert!(views(&folder).1.contains("13,607 tps"));
    run["schema_version"] = 7.into();
    fs::write(&path, run.to_string()).unwrap();
    let error = report::html(folder.path()).unwrap_err();
    assert!(error.to_string().contains("has schema version 7") && error.hint().is_some(), "{error}");
}

#[test]
fn files_cut_anywhere_are_read() {
    let whole = fixture::write(Scene::Single);
    for name in FILES {
        let bytes = fs::read(whole.path().join(name)).unwrap();
        for cut in [0, 1, 17, bytes.len() / 3, bytes.len() / 2, bytes.len() - 2] {
            fs::write(whole.path().join(name), &bytes[..cut]).unwrap();
            // It is replaced as a whole: no crash of a run leaves half of one, at most an empty one.
            if name == "run.json" && cut > 0 {
                let error = report::html(whole.path()).unwrap_err();
                assert!(error.to_string().contains("run.json is not valid"), "{name} cut at {cut}: {error}");
                continue;
            }
            let (html, _, _) = views(&whole);
            assert!(html.contains("</html>"), "{name} cut at {cut}");
        }
        fs::write(whole.path().join(name), &bytes).unwrap();
    }
}

#[test]
fn numbers_out_of_their_mind_do_not_panic() {
    let folder = Folder::new("20251120-101500-run-odd");
    let run = r#"{"schema_version":1,"verb":"run","state":"finished","ended_us":3,"steps":[
        {"key":"run-a","verb":"run","name":"a","start_us":9000000,"end_us":5,"state":"finished",
         "phases":[{"name":"measure","start_us":18446744073709551615,"end_us":0}],
         "summary":{"verb":"run","tps":1e308,"duration_s":-1,"transactions":0},
         "types":[{"name":"t","latency_us":{"p50":18446744073709551615}}]},
        {"key":"run-a","verb":"run","name":"a","start_us":0,"state":"finished"},
        {"key":"","verb":"","name":""}]}"#;
    fs::write(folder.path().join("run.json"), run).unwrap();
    let sample = |t_us: u64, step: &str| {
        format!(
            "{{\"t_us\":{t_us},\"interval_us\":18446744073709551615,\"source\":\"client\",\"step\":\"{step}\",\"transactions\":18446744073709551615}}\n"
        )
    };
    let samples: String =
        [0, 5, u64::MAX].iter().map(|t_us| sample(*t_us, "run-a") + &sample(*t_us, "b")).collect();
    fs::write(folder.path().join("samples.ndjson"), samples).unwrap();
    fs::write(folder.path().join("events.ndjson"), "{\"t_us\":18446744073709551615,\"kind\":\"outage\",\"duration_us\":18446744073709551615,\"step\":\"run-a\"}\n").unwrap();
    let (html, text, _) = views(&folder);
    assert!(html.contains("</html>") && !text.is_empty());
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let folder = Folder::new("holiday");
    fs::write(folder.path().join("beach.txt"), "sand").unwrap();
    for error in [
        report::html(folder.path()).unwrap_err(),
        report::text(folder.path()).unwrap_err(),
        report::json(folder.path()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("is not a run directory") && error.hint().is_some());
    }
}
