//! OBS: the coverage of the monitoring, and its cost.

use crate::case::Case;
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use record::event;
use record::finding::{Level, Severity, Window};
use record::watched::Watching;
use record::watched::cost::{COST_SHARE_MAX, Cost};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "OBS-01",
        title: "monitoring had gaps",
        needs: &[Any(&[Field("server", "*"), Field("host", "*")])],
        limits: "coverage below 95 %, any reset or restart (ours)",
        judge: blind,
        links: &["docs/watch.md"],
    },
    Rule {
        id: "OBS-02",
        title: "monitoring itself takes noticeable CPU",
        needs: &[Field("watching", "cpu_us")],
        limits: "1 % of the CPUs of the recording host, over 60 s (ours)",
        judge: costly,
        links: &["docs/watch.md"],
    },
];

/// A shorter recording is not judged: its first sample is expensive and weighs too much.
const COST_SECONDS_MIN: f64 = 60.0;

/// Ticks seen of ticks due.
const COVERAGE: f64 = 0.95;
/// Ticks that must have been due.
const TICKS_MIN: f64 = 10.0;

fn blind(case: &Case) -> Answer {
    let mut claims = vec![];
    for (source, thing) in
        ["server", "host"].iter().flat_map(|source| case.things(source).map(move |thing| (*source, thing)))
    {
        let ticks = &thing.lines.ticks;
        let times_us: Vec<u64> = ticks.points().iter().map(|point| point.to_us).collect();
        let usual =
            statistics::median(times_us.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64));
        let Some(usual) = usual.filter(|usual| *usual > 0.0) else { continue };
        let due = (ticks.window().length_us() as f64 / usual).max(times_us.len() as f64);
        let seen = times_us.len() as f64 / due;
        if due < TICKS_MIN || seen >= COVERAGE {
            continue;
        }
        let holes: Vec<Window> = times_us
            .windows(2)
            .filter(|pair| pair[1].saturating_sub(pair[0]) as f64 > usual * 1.5)
            .map(|pair| Window::new(pair[0], pair[1]))
            .collect();
        let longest = holes.iter().map(|hole| hole.length_us()).max().unwrap_or(0);
        let gap = case.events_of(event::GAP).find(|event| {
            Case::word_of(event, "node") == thing.place || Case::word_of(event, "host") == thing.place
        });
        let claim = Claim::new(
            if seen < 0.5 { Severity::Medium } else { Severity::Low },
            Level::DiscriminatingCounter,
            format!(
                "{}: {} of the samples were taken; the longest gap is {}",
                thing.place,
                units::percent(seen),
                units::us(longest as f64)
            ),
        )
        .during(holes)
        .number("coverage", seen)
        .number("longest_hole_us", longest as f64)
        .with(gap, |claim, event| claim.because(event.message.clone()))
        .because("what happened in the gaps is unknown: gaps are more likely when the host is overloaded")
        .remedy("run the monitoring on another host or with a higher priority; sample less often", &[]);
        claims.push(if source == "server" { claim.on_node(thing.place) } else { claim.on_host(thing.place) });
    }
    for (kind, what) in [(event::RESET, "counters were reset"), (event::RESTART, "the server was restarted")]
    {
        let events: Vec<_> = case.events_of(kind).collect();
        if let Some(first) = events.first() {
            claims.push(
                Claim::new(
                    Severity::Low,
                    Level::DiscriminatingCounter,
                    format!("{what} {}: {}", units::counted(events.len(), "time"), first.message),
                )
                .on_node(Case::word_of(first, "node"))
                .during(
                    events
                        .iter()
                        .map(|event| Window::new(event.t_us, event.t_us + event.duration_us.unwrap_or(0))),
                )
                .number("times", events.len() as f64)
                .because("counters are compared between samples; across this moment they are void"),
            );
        }
    }
    Answer::of(claims, || "samples taken of samples due, resets, restarts".to_string())
}

fn costly(case: &Case) -> Answer {
    let mut cost = Cost::default();
    let mut parts: Vec<(String, f64)> = vec![];
    for thing in case.things("watching") {
        let sum = |field: &str| thing.lines.series(field).map(|series| series.sum() as u64);
        let interval_us = thing.lines.series("cpu_us").map_or(0, |series| {
            series.points().iter().map(|point| point.interval_us).fold(0, u64::saturating_add)
        });
        let line = Watching {
            node: thing.lines.word("node").to_string(),
            host: thing.lines.word("host").to_string(),
            part: thing.name.to_string(),
            cpu_us: sum("cpu_us"),
            server_cpu_us: sum("server_cpu_us"),
            programs_cpu_us: sum("programs_cpu_us"),
            asked_us: sum("asked_us"),
            questions: sum("questions"),
            cores: thing.lines.max("cores").map(|cores| cores as u64),
            ..Watching::default()
        };
        cost.add(interval_us, &line);
        let cpu_us = [line.cpu_us, line.server_cpu_us, line.programs_cpu_us]
            .into_iter()
            .flatten()
            .fold(0, u64::saturating_add);
        parts.push((format!("{} of {}", thing.name, thing.place), cpu_us as f64));
    }
    let (Some(share), Some(words)) = (cost.share(), cost.words()) else {
        return Answer::CannotTell(
            "the number of processors of the recording host was not recorded".to_string(),
        );
    };
    let seconds = cost.watched_us() as f64 / 1e6;
    if share <= COST_SHARE_MAX || seconds < COST_SECONDS_MIN {
        return Answer::Clean(words);
    }
    parts.sort_by(|left, right| right.1.total_cmp(&left.1));
    let dearest = parts.first().map_or("", |(name, _)| name.as_str());
    Answer::Found(vec![
        Claim::new(
            Severity::Note,
            Level::DiscriminatingCounter,
            format!("monitoring took {} of the CPU of the recording host", units::percent(share)),
        )
        .during([case.span])
        .number("share", share)
        .number("cpu_us", cost.cpu_us() as f64)
        .because(words)
        .because(format!("the most expensive part is {dearest}"))
        .remedy(
            "if every percent counts, sample less often or without stacks, and compare with an unmonitored run",
            &["$ pgfathom watch --interval 5 --perf off ...", "$ pgfathom run --watch off ..."],
        ),
    ])
}
