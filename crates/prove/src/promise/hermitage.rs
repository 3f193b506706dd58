//! The verdicts of scripted interleavings, as promises: a level keeps what it prevents, allows what it does not, and a cluster's cases each have a line.

use engines::Engine;
use record::promise::{Control, Promise, Reading, Standing, bound};
use serde_json::{Map, json};

use crate::hermitage::{Answer, LEVELS, Verdict};
use engines::profile::Isolation;

/// The level whose scripts are the control of those at stronger ones.
const WEAKEST: Option<Isolation> = Some(Isolation::ReadCommitted);

/// What a level is for, in the words of a witness.
fn why(engine: Engine, level: Isolation) -> &'static str {
    if engine.levels.are_own() {
        return "the engine's own levels, by their PostgreSQL names";
    }
    match level {
        Isolation::Serializable => {
            "SERIALIZABLE tracks reads of rows that others write, and refuses one of a dangerous pair"
        }
        Isolation::RepeatableRead => {
            "each transaction has one snapshot, and of two that overwrite each other the second is refused; what one reads and the other writes is not tracked"
        }
        _ => "each statement has its own snapshot; only writes of one row wait for each other",
    }
}

fn change(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadCommitted => {
            "use REPEATABLE READ or SERIALIZABLE and retry 40001, or lock what is read: SELECT ... FOR UPDATE"
        }
        _ => "use SERIALIZABLE and retry 40001, or lock what is read: SELECT ... FOR UPDATE",
    }
}

/// Promises from answers: of the scripts of one server two lines per level at most, of a cluster's cases one each.
pub fn hermitage(engine: Engine, answers: &[Answer], place: &str) -> Vec<Promise> {
    let mut promises = Vec::new();
    for level in LEVELS {
        let of_level = |answer: &&Answer| answer.level == Some(level) && answer.promise.is_empty();
        promises.extend(at_level(
            engine,
            level,
            &answers.iter().filter(of_level).collect::<Vec<_>>(),
            answers,
            place,
        ));
    }
    promises.extend(answers.iter().filter(|answer| !answer.promise.is_empty()).map(|answer| {
        let mut promise = of_cluster(answer, place);
        // What one statement can see, a transaction can see, too: where sums by chance were wrong at this level, no script shows that a transaction is better.
        let is_refuted = |other: &&Answer| {
            (other.case, other.level) == ("FR", answer.level)
                && matches!(other.verdict(), Verdict::Broken | Verdict::ByDesign)
        };
        if let Some(statement) = answers.iter().find(is_refuted).filter(|_| answer.case == "FR2") {
            super::bound_by(&mut promise, &of_cluster(statement, place));
        }
        promise
    }));
    promises
}

fn setting(place: &str, words: &str) -> String {
    [place, words].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
}

fn codes(answers: &[&Answer]) -> String {
    answers.iter().map(|answer| answer.case).collect::<Vec<_>>().join(", ")
}

/// One level of one server.
fn at_level(
    engine: Engine,
    level: Isolation,
    answers: &[&Answer],
    all: &[Answer],
    place: &str,
) -> Vec<Promise> {
    let chosen = |wanted: &dyn Fn(&Answer) -> bool| -> Vec<&Answer> {
        answers.iter().filter(|answer| wanted(answer)).copied().collect()
    };
    let base = Promise {
        workload: "hermitage".to_owned(),
        setting: setting(place, level.name()),
        unit: "interleavings".to_owned(),
        reading: Reading::Answers,
        ..Promise::default()
    };
    let mut promises = Vec::new();
    let forbidden = chosen(&|answer| answer.expected == Some(false) && answer.happened.is_some());
    if !forbidden.is_empty() {
        promises.push(prevented(engine, level, &forbidden, all, base.clone()));
    }
    for expected in [Some(true), None] {
        let allowed = chosen(&|answer| answer.expected == expected && answer.happened.is_some());
        let happened: Vec<&&Answer> = allowed.iter().filter(|answer| answer.happened == Some(true)).collect();
        if allowed.is_empty() {
            continue;
        }
        promises.push(Promise {
            promise: match expected {
                Some(_) => format!("{level} does not promise to prevent {}", codes(&allowed)),
                None => format!("no promise of {level} was found about {}", codes(&allowed)),
            },
            standing: if happened.is_empty() { Standing::AllowedNotSeen } else { Standing::ByDesign },
            n: allowed.len() as u64,
            seen: happened.len() as u64,
            witness: happened.first().map(|answer| script(answer)).unwrap_or_default(),
            why: match expected {
                None => format!("the profile of the engine ({}) states nothing about it", engine.name()),
                Some(_) => why(engine, level).to_owned(),
            },
            change: if happened.is_empty() { String::new() } else { change(level).to_owned() },
            figures: lines(&allowed),
            ..base.clone()
        });
    }
    let untold = chosen(&|answer| answer.happened.is_none());
    if let Some(first) = untold.first() {
        promises.push(Promise {
            promise: format!("{level} and {}", codes(&untold)),
            standing: Standing::NotTested,
            why: first.line.clone(),
            ..base
        });
    }
    promises
}

/// What the level prevents.
fn prevented(
    engine: Engine,
    level: Isolation,
    forbidden: &[&Answer],
    all: &[Answer],
    base: Promise,
) -> Promise {
    let broken: Vec<&Answer> =
        forbidden.iter().filter(|answer| answer.verdict() == Verdict::Broken).copied().collect();
    let at_weaker = |case: &str| {
        all.iter().any(|other| other.case == case && other.level == WEAKEST && other.happened == Some(true))
    };
    let control = (level != Isolation::ReadCommitted).then(|| Control {
        what: "the same scripts at READ COMMITTED".to_owned(),
        n: forbidden.len() as u64,
        seen: forbidden.iter().filter(|answer| at_weaker(answer.case)).count() as u64,
    });
    // A script that breaks a weaker level shows a server whose levels are not to be relied on: that it went well once at a stronger one proves nothing.
    let is_undercut = |answer: &&&Answer| {
        all.iter().any(|other| {
            other.case == answer.case && other.level < Some(level) && other.verdict() == Verdict::Broken
        })
    };
    let (standing, reason) = match (forbidden.iter().find(is_undercut), &control) {
        _ if !broken.is_empty() => (Standing::Broken, why(engine, level).to_owned()),
        (Some(answer), _) => (
            Standing::NotTested,
            format!("{} breaks a weaker level, so one success here proves nothing", answer.case),
        ),
        (None, Some(control)) if control.seen == 0 => (
            Standing::NotTested,
            "it did not happen at READ COMMITTED either: the sessions did not overlap".to_owned(),
        ),
        _ => (Standing::Kept, why(engine, level).to_owned()),
    };
    Promise {
        promise: format!("{level} prevents {}", codes(forbidden)),
        standing,
        n: forbidden.len() as u64,
        seen: broken.len() as u64,
        control,
        witness: broken.first().map(|answer| script(answer)).unwrap_or_default(),
        why: reason,
        change: match broken.is_empty() {
            true => String::new(),
            false => "check whether a pooler or a setting changes the level, then report it with the script"
                .to_owned(),
        },
        figures: lines(forbidden),
        ..base
    }
}

/// What each script came to, for run.json.
fn lines(answers: &[&Answer]) -> Map<String, serde_json::Value> {
    answers.iter().map(|answer| (answer.case.to_owned(), json!(answer.line))).collect()
}

fn script(answer: &Answer) -> Vec<String> {
    let title = std::iter::once(format!("{}: {}: {}", answer.case, answer.title, answer.line));
    // One witness: what is played stands under what came of it.
    title.chain(answer.script.iter().map(|line| format!("  {line}"))).collect()
}

/// A case of a cluster.
fn of_cluster(answer: &Answer, place: &str) -> Promise {
    let verdict = answer.verdict();
    let words = setting(&setting(place, answer.level.map_or("", Isolation::name)), &answer.setting);
    let (n, seen, unit) = answer.counted.unwrap_or((
        u64::from(answer.happened.is_some()),
        u64::from(answer.happened == Some(true)),
        "interleavings",
    ));
    let is_chance = answer.counted.is_some();
    let has_happened = matches!(verdict, Verdict::Broken | Verdict::ByDesign);
    Promise {
        workload: "hermitage".to_owned(),
        promise: format!("{}: {}", answer.case, answer.promise),
        setting: words,
        standing: match verdict {
            Verdict::Kept => Standing::Kept,
            Verdict::ByDesign => Standing::ByDesign,
            Verdict::AllowedNotSeen => Standing::AllowedNotSeen,
            Verdict::Broken => Standing::Broken,
            Verdict::NotTested => Standing::NotTested,
            Verdict::NotPossible => Standing::NotPossible,
        },
        n,
        unit: unit.to_owned(),
        reading: Reading::Answers,
        seen,
        bound: if is_chance && seen == 0 { bound(n) } else { None },
        control: answer.control.clone(),
        witness: if has_happened { script(answer) } else { Vec::new() },
        why: match verdict {
            Verdict::NotTested | Verdict::NotPossible => answer.line.clone(),
            _ => answer.why.to_owned(),
        },
        change: match verdict {
            Verdict::Broken | Verdict::ByDesign => answer.change.to_owned(),
            Verdict::NotPossible => {
                "name a cluster of pgfathom up with --cluster, make one with --local, or give --allow-faults"
                    .to_owned()
            }
            _ => String::new(),
        },
        ..Promise::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(
        case: &'static str,
        level: impl Into<Option<Isolation>>,
        expected: Option<bool>,
        happened: Option<bool>,
    ) -> Answer {
        Answer {
            case,
            level: level.into(),
            expected,
            happened,
            line: "as it came".into(),
            script: vec!["a: SELECT 1;".into()],
            ..Answer::default()
        }
    }

    #[test]
    fn a_level_keeps_what_it_prevents_and_lets_happen_what_it_does_not() {
        let answers = [
            answer("P4", Isolation::ReadCommitted, Some(true), Some(true)),
            answer("P4", Isolation::RepeatableRead, Some(false), Some(false)),
            answer("G2-item", Isolation::RepeatableRead, Some(true), Some(true)),
            answer("G2-item", Isolation::Serializable, Some(false), Some(true)),
            answer("G0", Isolation::Serializable, Some(false), None),
        ];
        let promises = hermitage(Engine::default(), &answers, "single");
        let found: Vec<(Standing, &str, &str)> = promises
            .iter()
            .map(|promise| (promise.standing, promise.promise.as_str(), promise.setting.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (
                    Standing::ByDesign,
                    "READ COMMITTED does not promise to prevent P4",
                    "single, READ COMMITTED"
                ),
                (Standing::Kept, "REPEATABLE READ prevents P4", "single, REPEATABLE READ"),
                (
                    Standing::ByDesign,
                    "REPEATABLE READ does not promise to prevent G2-item",
                    "single, REPEATABLE READ"
                ),
                (Standing::Broken, "SERIALIZABLE prevents G2-item", "single, SERIALIZABLE"),
                (Standing::NotTested, "SERIALIZABLE and G0", "single, SERIALIZABLE"),
            ]
        );
        // The control of a strong level is the weak one.
        assert_eq!(promises[1].control.as_ref().map(|control| (control.n, control.seen)), Some((1, 1)));
        assert!(promises[3].witness.iter().any(|line| line == "  a: SELECT 1;"));
    }

    #[test]
    fn a_script_that_breaks_a_weaker_level_proves_no_stronger_one() {
        let mut answers = vec![
            answer("G1a", Isolation::ReadCommitted, Some(false), Some(true)),
            answer("G1a", Isolation::RepeatableRead, Some(false), Some(false)),
            answer("P4", Isolation::ReadCommitted, Some(true), Some(true)),
            answer("P4", Isolation::RepeatableRead, Some(false), Some(false)),
        ];
        let standing = |answers: &[Answer]| {
            let promises = hermitage(Engine::default(), answers, "");
            let prevents = |promise: &&Promise| promise.promise.starts_with("REPEATABLE READ prevents");
            promises.iter().find(prevents).unwrap().standing
        };
        assert_eq!(standing(&answers), Standing::NotTested);
        answers[0].happened = Some(false);
        assert_eq!(standing(&answers), Standing::Kept);
        // Nothing happened where it may: no two transactions overlapped.
        answers[2].happened = Some(false);
        assert_eq!(standing(&answers), Standing::NotTested);
    }

    #[test]
    fn a_transaction_is_no_better_than_its_statements() {
        let mut half = answer("FR2", Isolation::Serializable, Some(false), Some(false));
        half.promise = "a transaction sees all or nothing";
        let mut sums = answer("FR", Isolation::Serializable, Some(true), Some(true));
        sums.promise = "one SELECT sees all or nothing";
        sums.counted = Some((300, 2, "sums"));
        let standings = |answers: &[Answer]| -> Vec<Standing> {
            hermitage(Engine::parse("citus").unwrap(), answers, "")
                .iter()
                .map(|promise| promise.standing)
                .collect()
        };
        assert_eq!(standings(&[half.clone(), sums]), [Standing::ByDesign, Standing::ByDesign]);
        assert_eq!(standings(&[half]), [Standing::Kept]);
    }

    #[test]
    fn what_a_cluster_forbids_by_chance_needs_a_number() {
        let mut stale = answer("RYW", None, Some(true), Some(false));
        stale.promise = "a standby shows at once what was acknowledged";
        stale.counted = Some((300, 0, "reads"));
        let promises = hermitage(Engine::default(), std::slice::from_ref(&stale), "");
        assert_eq!((promises[0].standing, promises[0].bound), (Standing::AllowedNotSeen, Some(0.01)));
        stale.happened = None;
        stale.is_impossible = true;
        let promises = hermitage(Engine::default(), &[stale], "");
        assert_eq!((promises[0].standing, promises[0].why.as_str()), (Standing::NotPossible, "as it came"));
    }
}
