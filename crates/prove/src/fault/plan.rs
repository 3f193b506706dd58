//! The plan of faults, by time and node: `kill@10s,heal@15s`, or drawn from a seed.

use std::fmt;
use std::time::Duration;

use super::Fault;

/// Steps at most: a plan is read by people.
pub const STEPS_MAX: usize = 100;
/// The longest delay of the proxy.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// What happens when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// In the order of their time.
    pub steps: Vec<Step>,
    /// The seed it was drawn from.
    pub seed: Option<u64>,
}

/// One thing that happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// After the start.
    pub at: Duration,
    /// The fault; `None` undoes all faults so far.
    pub fault: Option<Fault>,
    /// To which node; `None`: the one that takes writes (for `promote`: the standby that has received most).
    pub node: Option<String>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Some(fault) => write!(f, "{fault}")?,
            None => f.write_str("heal")?,
        }
        if let Some(node) = &self.node {
            write!(f, ":{node}")?;
        }
        let ms = self.at.as_millis();
        if ms.is_multiple_of(1000) { write!(f, "@{}s", ms / 1000) } else { write!(f, "@{ms}ms") }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if number > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// A plan that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct PlanError {
    /// What is wrong.
    pub problem: String,
    hint: String,
}

impl PlanError {
    fn new(problem: String) -> PlanError {
        let words: Vec<&str> = Fault::ALL.into_iter().map(Fault::word).collect();
        PlanError {
            problem,
            hint: format!(
                "write FAULT[:NODE]@TIME, separated by commas, as kill@10s,heal@15s; the faults are {}, and heal",
                words.join(", ")
            ),
        }
    }

    /// What to type instead.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl Plan {
    /// Reads `kill@10s,heal@15s`, `pause:n2@3s`, `delay=50ms@1s`.
    ///
    /// # Errors
    /// Unknown faults, malformed times, more than [`STEPS_MAX`] steps.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let mut steps = text.split(',').map(step).collect::<Result<Vec<Step>, PlanError>>()?;
        if steps.len() > STEPS_MAX {
            return Err(PlanError::new(format!("{} steps are more than {STEPS_MAX}", steps.len())));
        }
        steps.sort_by_key(|step| step.at);
        Ok(Plan { steps, seed: None })
    }

    /// Draws faults over `duration`, each healed before the next: the same seed draws the same plan from the same choice.
    pub fn draw(seed: u64, duration: Duration, choice: &[Fault], nodes: &[String]) -> Plan {
        /// The least length of a fault, and of the pause after it.
        const SPAN_MIN: Duration = Duration::from_millis(500);
        let mut state = seed;
        let mut below = |limit: u64| next(&mut state) % limit.max(1);
        let mut steps = Vec::new();
        let mut at = SPAN_MIN;
        while !choice.is_empty() && at + 2 * SPAN_MIN < duration && steps.len() + 2 <= STEPS_MAX {
            let fault = choice[below(choice.len() as u64) as usize];
            let node = (!nodes.is_empty()).then(|| nodes[below(nodes.len() as u64) as usize].clone());
            let left = (duration - at).as_millis() as u64;
            let span = SPAN_MIN.as_millis() as u64;
            let lasts = Duration::from_millis(span + below((left / 4).max(1)));
            steps.push(Step { at, fault: Some(fault), node: node.filter(|_| fault != Fault::Promote) });
            steps.push(Step { at: at + lasts, fault: None, node: None });
            at += lasts + Duration::from_millis(span + below((left / 4).max(1)));
        }
        Plan { steps, seed: Some(seed) }
    }

    /// The first injection.
    pub fn first(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.fault.is_some())
    }

    /// Every fault in it once, in order.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        for fault in self.steps.iter().filter_map(|step| step.fault) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }

    /// Whether clients have to connect through the proxy.
    pub fn needs_proxy(&self) -> bool {
        self.faults().into_iter().any(Fault::needs_proxy)
    }

    /// Whether nodes need separate disks.
    pub fn needs_disks(&self) -> bool {
        self.faults().into_iter().any(Fault::needs_disk)
    }

    /// Whether the connections between the nodes have to pass proxies.
    pub fn needs_links(&self) -> bool {
        self.faults().contains(&Fault::Partition)
    }

    /// The end of the last step.
    pub fn ends(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |step| step.at)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and three mixes a number.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn step(text: &str) -> Result<Step, PlanError> {
    let text = text.trim();
    let (what, at) = text.rsplit_once('@').ok_or_else(|| PlanError::new(format!("{text:?} has no time")))?;
    let at = time(at).ok_or_else(|| PlanError::new(format!("{at:?} is not a time")))?;
    let (what, node) = what.split_once(':').map_or((what, None), |(what, node)| (what, Some(node)));
    let node = node.map(str::trim).filter(|node| !node.is_empty()).map(str::to_owned);
    let (word, value) = what.split_once('=').map_or((what, None), |(word, value)| (word, Some(value)));
    let word = word.trim();
    if word == "heal" {
        return match value {
            None => Ok(Step { at, fault: None, node }),
            Some(_) => Err(PlanError::new("heal takes no value".to_owned())),
        };
    }
    let fault = Fault::ALL
        .into_iter()
        .find(|fault| fault.word() == word)
        .ok_or_else(|| PlanError::new(format!("there is no fault {word:?}")))?;
    let fault = match (fault, value) {
        (fault, None) => fault,
        (Fault::Delay(_), Some(value)) => match time(value) {
            Some(delay) if delay <= DELAY_MAX => Fault::Delay(delay),
            _ => {
                return Err(PlanError::new(format!(
                    "{value:?} is not a delay of at most {} s",
                    DELAY_MAX.as_secs()
                )));
            }
        },
        (Fault::Rate(_), Some(value)) => match value.trim().parse() {
            Ok(rate) if rate > 0 => Fault::Rate(rate),
            _ => return Err(PlanError::new(format!("{value:?} is not a number of bytes a second"))),
        },
        (fault, Some(_)) => return Err(PlanError::new(format!("{} takes no value", fault.word()))),
    };
    Ok(Step { at, fault: Some(fault), node })
}

/// `10s`, `500ms`, `2m`, `1.5s`; a bare number is seconds.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit_ms) = match text {
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 1.0),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1e3),
        _ if text.ends_with('m') => (&text[..text.len() - 1], 6e4),
        _ => (text, 1e3),
    };
    let value: f64 = number.trim().parse().ok()?;
    /// A day: longer plans are mistakes.
    const MS_MAX: f64 = 86_400_000.0;
    (value >= 0.0 && value * unit_ms <= MS_MAX).then(|| Duration::from_micros((value * unit_ms * 1e3) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_sorted_and_written_back() {
        let plan = Plan::parse("heal@15s, kill@10s,pause:n2@0.5s,delay=20ms@1m,rate=1000:n1@2").unwrap();
        assert_eq!(plan.to_string(), "pause:n2@500ms,rate=1000:n1@2s,kill@10s,heal@15s,delay=20ms@60s");
        assert_eq!(Plan::parse(&plan.to_string()).unwrap(), plan);
        assert_eq!(plan.first().map(ToString::to_string).as_deref(), Some("pause:n2@500ms"));
        assert!(plan.needs_proxy() && !Plan::parse("kill@1s").unwrap().needs_proxy());
        let other = Plan::parse("partition:n2@1s,heal@2s").unwrap();
        assert!(other.needs_links() && !other.needs_proxy() && other.faults()[0].hurts_server());
        assert_eq!(plan.faults().len(), 4);
    }

    #[test]
    fn errors_list_all_valid_words() {
        for (text, words) in [
            ("kill", "has no time"),
            ("explode@1s", "there is no fault \"explode\""),
            ("kill@soon", "\"soon\" is not a time"),
            ("kill@-1s", "is not a time"),
            ("kill@9999999s", "is not a time"),
            ("kill=3@1s", "kill takes no value"),
            ("heal=3@1s", "heal takes no value"),
            ("delay=2h@1s", "is not a delay"),
            ("rate=0@1s", "is not a number of bytes"),
            ("", "has no time"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
            assert!(error.hint().contains("drop-commit") && error.hint().contains("heal"));
        }
        assert!(Plan::parse(&vec!["kill@1s"; STEPS_MAX + 1].join(",")).is_err());
    }

    #[test]
    fn a_seed_is_a_plan() {
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let choice = [Fault::Kill, Fault::Pause, Fault::Promote];
        let draw = |seed| Plan::draw(seed, Duration::from_secs(30), &choice, &nodes);
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for seed in 0..200 {
            let plan = draw(seed);
            assert!(plan.steps.len() >= 2 && plan.ends() < Duration::from_secs(30), "{seed}: {plan}");
            // Every fault is healed before the next one.
            assert!(plan.steps.windows(2).all(|pair| pair[0].at < pair[1].at));
            assert!(plan.steps.iter().enumerate().all(|(at, step)| step.fault.is_some() == (at % 2 == 0)));
            assert!(plan.steps.iter().all(|step| step.fault != Some(Fault::Promote) || step.node.is_none()));
        }
        assert!(Plan::draw(1, Duration::from_secs(30), &[], &nodes).steps.is_empty());
    }
}
