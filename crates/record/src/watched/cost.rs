//! The cost of monitoring, added up from its own counters.

use super::Watching;
use std::collections::BTreeMap;

/// Above this share of all processors watching is no longer negligible: it can be seen in throughput.
pub const COST_SHARE_MAX: f64 = 0.01;

/// Sums over lines of [`Watching`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// CPU time of the threads that look.
    pub threads_us: u64,
    /// CPU time of the server's processes that answered them, as far as they run on the machine that records.
    pub server_us: u64,
    /// CPU time of the threads that print stacks.
    pub programs_us: u64,
    /// Time waited for answers of servers on other machines: more than these computed.
    pub asked_elsewhere_us: u64,
    /// Statements sent.
    pub questions: u64,
    /// CPUs of the machine that records.
    pub cores: u64,
    /// Watched time by part.
    watched_us: BTreeMap<(String, String, String), u64>,
}

impl Cost {
    /// Takes a line, or sums of lines of one part.
    pub fn add(&mut self, interval_us: u64, line: &Watching) {
        self.threads_us += line.cpu_us.unwrap_or(0);
        self.programs_us += line.programs_cpu_us.unwrap_or(0);
        self.questions += line.questions.unwrap_or(0);
        match line.server_cpu_us {
            Some(us) => self.server_us += us,
            None => self.asked_elsewhere_us += line.asked_us.unwrap_or(0),
        }
        self.cores = self.cores.max(line.cores.unwrap_or(0));
        let part = (line.node.clone(), line.host.clone(), line.part.clone());
        *self.watched_us.entry(part).or_default() += interval_us;
    }

    /// How long was watched.
    pub fn watched_us(&self) -> u64 {
        self.watched_us.values().copied().max().unwrap_or(0)
    }

    /// CPU time on the machine that records.
    pub fn cpu_us(&self) -> u64 {
        self.threads_us + self.server_us + self.programs_us
    }

    /// The share of all CPUs of the machine that records; `None` if it was not measured.
    pub fn share(&self) -> Option<f64> {
        let all_us = self.cores * self.watched_us();
        (all_us > 0).then(|| self.cpu_us() as f64 / all_us as f64)
    }

    /// `monitoring took 0.6 % of the CPU: 11.8 ms a second of 2 processors (sampling 2.1, queries in the server 8.6, printing stacks 1.1)`; `None` if it
    /// was not measured.
    pub fn words(&self) -> Option<String> {
        const US_PER_MS: f64 = 1000.0;
        let share = self.share()?;
        let per_second = |us: u64| us as f64 / US_PER_MS / (self.watched_us() as f64 / 1e6);
        let mut parts = vec![format!("sampling {:.1}", per_second(self.threads_us))];
        if self.server_us > 0 {
            parts.push(format!("queries in the server {:.1}", per_second(self.server_us)));
        }
        if self.programs_us > 0 {
            parts.push(format!("printing stacks {:.1}", per_second(self.programs_us)));
        }
        let mut words = format!(
            "monitoring took {:.1} % of the CPU: {:.1} ms a second of {} ({})",
            share * 100.0,
            per_second(self.cpu_us()),
            if self.cores == 1 { "1 processor".to_string() } else { format!("{} processors", self.cores) },
            parts.join(", ")
        );
        if self.asked_elsewhere_us > 0 {
            words.push_str(&format!(
                "; servers on other hosts took {:.1} ms a second for its queries",
                per_second(self.asked_elsewhere_us)
            ));
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(part: &str, cpu_us: u64) -> Watching {
        Watching {
            host: "h".into(),
            part: part.into(),
            cpu_us: Some(cpu_us),
            cores: Some(2),
            ..Watching::default()
        }
    }

    #[test]
    fn parts_that_go_on_together_add_up_over_the_time_of_one() {
        let mut cost = Cost::default();
        assert_eq!((cost.share(), cost.words()), (None, None));
        for _ in 0..2 {
            cost.add(10_000_000, &line("machine", 10_000));
            cost.add(
                10_000_000,
                &Watching { server_cpu_us: Some(60_000), asked_us: Some(90_000), ..line("views", 30_000) },
            );
            cost.add(10_000_000, &Watching { programs_cpu_us: Some(20_000), ..line("stacks", 0) });
        }
        assert_eq!(cost.share(), Some(0.006));
        assert_eq!(
            cost.words().as_deref(),
            Some(
                "monitoring took 0.6 % of the CPU: 12.0 ms a second of 2 processors (sampling 4.0, queries in the server 6.0, printing stacks 2.0)"
            )
        );
        cost.add(20_000_000, &Watching { node: "n2".into(), asked_us: Some(100_000), ..line("views", 0) });
        assert!(cost.words().is_some_and(|words| words.ends_with("took 5.0 ms a second for its queries")));
    }
}
