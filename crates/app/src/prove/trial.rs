//! One workload under one plan of faults.

use super::What;
use ::prove::fault;
use ::prove::live::Isolation;
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
