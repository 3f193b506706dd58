//! The same trial several times: one failover is an anecdote. Counts are added up, so that the bound of what was not seen becomes smaller, and times become
//! a distribution.

use record::promise::{Promise, Standing, bound};
use serde_json::{Map, Value, json};

use super::least::{enough, way_out};

/// Witnesses of all repeats together.
const WITNESSES_MAX: usize = 10;

/// What the repeats of one trial come to: a promise for each promise, setting and fault of theirs. One trial stays as it is. What was looked at too seldom, all
/// repeats together, is not tested.
pub fn together(trials: Vec<Vec<Promise>>) -> Vec<Promise> {
    let failover = super::failover::of(&trials);
    let mut promises = added_up(trials);
    // At the line that it belongs to: lost commits, or answers.
    let has = |name: &str, promise: &Promise| promise.figures.contains_key(name);
    let place = promises.iter().position(|one| has("rto_write_us", one));
    let place = place.or_else(|| promises.iter().position(|one| has("lost", one)));
    if let Some(promise) = place.and_then(|place| promises.get_mut(place)) {
        promise.failover = failover;
    }
    promises.iter_mut().for_each(enough);
    promises.iter_mut().for_each(way_out);
    promises
}

fn added_up(trials: Vec<Vec<Promise>>) -> Vec<Promise> {
    if trials.len() < 2 {
        return trials.into_iter().flatten().collect();
    }
    let mut groups: Vec<Vec<Promise>> = Vec::new();
    for promise in trials.into_iter().flatten() {
        // Not the setting: a failover manager writes another name into synchronous_standby_names after each failover.
        let is_same = |other: &Promise| {
            (&other.workload, &other.promise, &other.fault)
                == (&promise.workload, &promise.promise, &promise.fault)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(is_same)) {
            Some(group) => group.push(promise),
            None => groups.push(vec![promise]),
        }
    }
    groups.into_iter().filter_map(merged).collect()
}

fn merged(group: Vec<Promise>) -> Option<Promise> {
    let repeats = group.len();
    // The worst repeat gives the verdict; where one repeat did not test a line, another may have seen something.
    let mut promise = group.iter().min_by_key(|promise| promise.standing)?.clone();
    // A repeat that was not tested adds nothing to what the others have looked at.
    let is_tested = |one: &&Promise| !matches!(one.standing, Standing::NotTested | Standing::NotPossible);
    let tested: Vec<&Promise> = group.iter().filter(is_tested).collect();
    let untested: Vec<&Promise> = group.iter().filter(|one| !is_tested(one)).collect();
    // One that saw it for a reason of its own, such as an outage that the proof did not plan, is no proof that it is kept.
    let doubted = untested.iter().find(|one| one.seen > 0).filter(|_| promise.standing == Standing::Kept);
    if let Some(doubted) = doubted {
        (promise.standing, promise.change) = (Standing::NotTested, doubted.change.clone());
        let saw = untested.iter().filter(|one| one.seen > 0).count();
        promise.why = format!("in {saw} of {repeats} repeats: {}", doubted.why);
    }
    let all: Vec<&Promise> = group.iter().collect();
    let counted = match (tested.is_empty(), doubted) {
        (true, _) => &untested,
        (false, Some(_)) => &all,
        (false, None) => &tested,
    };
    promise.n = counted.iter().map(|one| one.n).sum();
    promise.seen = counted.iter().map(|one| one.seen).sum();
    promise.bound = if promise.seen == 0 { bound(promise.n) } else { None };
    if let (Some(first), false, None) = (untested.first(), tested.is_empty(), doubted) {
        promise.why = format!(
            "{}; {} of {repeats} repeats were not tested: {}",
            promise.why,
            untested.len(),
            first.why
        );
    }
    if let Some(control) = &mut promise.control {
        let all = || counted.iter().filter_map(|one| one.control.as_ref());
        control.n = all().map(|one| one.n).sum();
        control.seen = all().map(|one| one.seen).sum();
    }
    promise.witness = group.iter().flat_map(|one| one.witness.iter().cloned()).take(WITNESSES_MAX).collect();
    let mut settings: Vec<&str> = Vec::new();
    for one in &group {
        if !settings.contains(&one.setting.as_str()) {
            settings.push(&one.setting);
        }
    }
    promise.setting = settings.join("; or ");
    promise.figures = figures(&group);
    promise.figures.insert("repeats".to_owned(), json!(repeats));
    if !untested.is_empty() {
        promise.figures.insert("repeats_not_tested".to_owned(), json!(untested.len()));
    }
    if matches!(promise.standing, Standing::NotTested | Standing::NotPossible) {
        promise.bound = None;
    }
    Some(promise)
}

fn figures(group: &[Promise]) -> Map<String, Value> {
    let mut figures = Map::new();
    for name in group.iter().flat_map(|one| one.figures.keys()) {
        if figures.contains_key(name) {
            continue;
        }
        let values: Vec<&Value> = group.iter().filter_map(|one| one.figures.get(name)).collect();
        let value = match values.first() {
            _ if is_measured(name) => distributions(&values),
            Some(Value::Object(_)) => Value::Object(sums(&values)),
            _ => sum(&values),
        };
        figures.insert(name.clone(), value);
    }
    figures
}

/// Whether adding values up would prove nothing: times, sizes and shares.
fn is_measured(name: &str) -> bool {
    name.contains("_us")
        || name.contains("_ms")
        || name.ends_with("_s")
        || name.contains("_bytes")
        || name.starts_with("share_")
        || name.ends_with("_max")
        || name.contains("round_trips")
}

fn sum(values: &[&Value]) -> Value {
    match values.iter().map(|value| value.as_u64()).collect::<Option<Vec<u64>>>() {
        Some(counts) => json!(counts.iter().sum::<u64>()),
        None => json!(values.iter().filter_map(|value| value.as_f64()).sum::<f64>()),
    }
}

fn sums(values: &[&Value]) -> Map<String, Value> {
    let mut sums: Map<String, Value> = Map::new();
    for (name, value) in values.iter().filter_map(|value| value.as_object()).flatten() {
        let before = sums.get(name).cloned().unwrap_or(json!(0));
        sums.insert(name.clone(), sum(&[&before, value]));
    }
    sums
}

/// One distribution; of lists, which have a value for each fault of a plan, one for each place.
fn distributions(values: &[&Value]) -> Value {
    let lists: Option<Vec<&Vec<Value>>> = values.iter().map(|value| value.as_array()).collect();
    let places = lists.as_ref().and_then(|lists| lists.iter().map(|list| list.len()).max()).unwrap_or(0);
    match lists {
        Some(lists) if places > 1 => {
            let at =
                |place: usize| -> Vec<&Value> { lists.iter().filter_map(|list| list.get(place)).collect() };
            Value::Array((0..places).map(|place| distribution(&at(place))).collect())
        }
        _ => distribution(values),
    }
}

/// Smallest, middle and largest of all values; `never` counts those that did not come (`null`).
fn distribution(values: &[&Value]) -> Value {
    let mut all: Vec<f64> = Vec::new();
    let mut never = 0_u64;
    for value in values {
        let each = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(*one),
        };
        for item in each {
            match item.as_f64() {
                Some(number) => all.push(number),
                None => never += 1,
            }
        }
    }
    all.sort_by(f64::total_cmp);
    // Whole numbers stay whole.
    let number = |value: f64| match value.fract() == 0.0 && value.abs() < 1e15 {
        true => json!(value as i64),
        false => json!(value),
    };
    let middle = record::statistics::median(all.iter().copied());
    let mut map = Map::new();
    let named = [("min", all.first().copied()), ("median", middle), ("max", all.last().copied())];
    for (name, value) in named {
        if let Some(value) = value {
            map.insert(name.to_owned(), number(value));
        }
    }
    map.insert("of".to_owned(), json!(all.len() as u64 + never));
    if never > 0 {
        map.insert("never".to_owned(), json!(never));
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::promise::Control;

    fn one(standing: Standing, seen: u64, figures: Value) -> Promise {
        Promise {
            workload: "hb".to_owned(),
            promise: "writes come back".to_owned(),
            fault: "kill -9".to_owned(),
            standing,
            n: 100,
            seen,
            bound: if seen == 0 { bound(100) } else { None },
            control: Some(Control { what: "taken away".to_owned(), n: 1, seen: 1 }),
            witness: (seen > 0).then(|| format!("{seen} were lost")).into_iter().collect(),
            why: standing.description().to_owned(),
            figures: figures.as_object().cloned().unwrap(),
            ..Promise::default()
        }
    }

    #[test]
    fn repeats_add_counts_up_and_spread_times_out() {
        let trials = vec![
            vec![one(
                Standing::Kept,
                0,
                json!({"write_probes": 7, "rto_write_us": [300], "unavailable_s": 0.5}),
            )],
            vec![one(
                Standing::Kept,
                0,
                json!({"write_probes": 5, "rto_write_us": [100], "unavailable_s": 0.25}),
            )],
            vec![one(
                Standing::Kept,
                0,
                json!({"write_probes": 5, "rto_write_us": [null], "unavailable_s": 2}),
            )],
            vec![one(
                Standing::Kept,
                0,
                json!({"write_probes": 1, "rto_write_us": [200], "ahead": {"n1": 2}}),
            )],
            vec![one(Standing::Kept, 0, json!({"rto_write_us": [900], "ahead": {"n1": 1, "n2": 4}}))],
        ];
        let all = together(trials);
        let [all] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((all.n, all.seen, all.bound, all.standing), (500, 0, bound(500), Standing::Kept));
        assert_eq!(all.control.as_ref().map(|control| (control.n, control.seen)), Some((5, 5)));
        assert_eq!(
            Value::Object(all.figures.clone()),
            json!({
                "write_probes": 18,
                "rto_write_us": {"min": 100, "median": 250, "max": 900, "of": 5, "never": 1},
                "unavailable_s": {"min": 0.25, "median": 0.5, "max": 2, "of": 3},
                "ahead": {"n1": 3, "n2": 4},
                "repeats": 5,
            })
        );
    }

    /// Nine repeats that saw nothing because they could see nothing do not make the tenth one stronger.
    #[test]
    fn repeats_that_were_not_tested_add_nothing_and_are_reported() {
        let blind =
            || vec![Promise { why: "too little".to_owned(), ..one(Standing::NotTested, 0, json!({})) }];
        let all = together(vec![vec![one(Standing::Kept, 0, json!({}))], blind(), blind()]);
        assert_eq!((all[0].standing, all[0].n), (Standing::Kept, 100));
        assert!(all[0].why.ends_with("2 of 3 repeats were not tested: too little"), "{}", all[0].why);
        assert_eq!(all[0].control.as_ref().map(|control| control.n), Some(1));
        assert_eq!(all[0].figures["repeats_not_tested"], json!(2));
        let all = together(vec![blind(), blind()]);
        assert_eq!((all[0].standing, all[0].n, all[0].bound), (Standing::NotTested, 200, None));
        // One that saw an outage is no proof, whatever the others saw.
        let away = || {
            let words = ("an outage of 18 s that this proof did not plan", "check the server's log");
            vec![Promise {
                why: words.0.to_owned(),
                change: words.1.to_owned(),
                ..one(Standing::NotTested, 40, json!({}))
            }]
        };
        let all = together(vec![vec![one(Standing::Kept, 0, json!({}))], blind(), away()]);
        let found = (all[0].standing, all[0].n, all[0].seen, all[0].bound);
        assert_eq!(found, (Standing::NotTested, 300, 40, None), "{all:?}");
        assert!(all[0].why.starts_with("in 1 of 3 repeats: an outage of 18 s"), "{}", all[0].why);
        assert_eq!(all[0].change, "check the server's log");
        let all = together(vec![vec![one(Standing::Broken, 2, json!({}))], away()]);
        assert_eq!((all[0].standing, all[0].seen), (Standing::Broken, 2));
        // Too few in one repeat are enough in several.
        let few = || vec![Promise { n: 60, ..one(Standing::Kept, 0, json!({})) }];
        assert_eq!(together(vec![few()])[0].standing, Standing::NotTested);
        assert_eq!(together(vec![few(), few()])[0].standing, Standing::Kept);
    }

    #[test]
    fn every_fault_of_a_plan_has_its_own_distribution() {
        let trials = [[300, 100], [500, 120]]
            .map(|times| vec![one(Standing::Kept, 0, json!({"rto_write_us": times}))]);
        let all = together(trials.into());
        assert_eq!(
            all[0].figures["rto_write_us"],
            json!([
                {"min": 300, "median": 400, "max": 500, "of": 2},
                {"min": 100, "median": 110, "max": 120, "of": 2},
            ])
        );
    }

    #[test]
    fn the_worst_repeat_speaks_for_all_and_other_faults_stand_apart() {
        let mut other = one(Standing::NotTested, 0, json!({}));
        other.fault.clear();
        let all = together(vec![
            vec![one(Standing::Kept, 0, json!({})), other],
            vec![one(Standing::Broken, 2, json!({}))],
            vec![one(Standing::Kept, 0, json!({}))],
        ]);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].standing, all[0].seen, all[0].bound), (Standing::Broken, 2, None));
        assert_eq!((all[0].why.as_str(), all[0].witness.len()), ("BROKEN", 1));
        assert_eq!((all[1].standing, all[1].n), (Standing::NotTested, 100));
        let alone = together(vec![vec![one(Standing::Kept, 0, json!({"rto_write_us": [3]}))]]);
        assert_eq!(alone[0].figures["rto_write_us"], json!([3]), "one trial stays as it is");
    }
}
