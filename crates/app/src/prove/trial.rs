//! One workload under one plan of faults.

use super::What;
use ::prove::fault::{self, Fault, Site};
use ::prove::live::Isolation;
use ::prove::promise as verdicts;
use record::promise::Promise;
use std::time::Duration;

/// One workload under one plan.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub what: What,
    pub level: Isolation,
    pub commit: Option<String>,
    pub plan: fault::Plan,
    pub time: Duration,
}

impl Trial {
    /// What is reported when a fault of the plan cannot be injected here.
    pub(super) fn objection(&self, site: &Site, place: &str) -> Option<Promise> {
        let impossible = |fault, why: &str| {
            verdicts::not_possible(site, (self.what.word(), place), &self.plan, fault, why)
        };
        if let Some((fault, why)) = site.objection(&self.plan) {
            return Some(impossible(fault, &why));
        }
        if self.plan.needs_proxy() && (site.has_front() || site.nodes.iter().any(|node| node.proxy.is_none()))
        {
            let fault =
                self.plan.faults().into_iter().find(|fault| fault.needs_proxy()).unwrap_or(Fault::Cut);
            let why = match site.has_front() {
                true => "with --through, clients do not connect through the proxies of pgfathom",
                false => "clients do not connect through a proxy",
            };
            return Some(impossible(fault, why));
        }
        None
    }
}
