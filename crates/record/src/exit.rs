//! Exit codes of the command; scripts and CI depend on them.

/// How a command ends. The number is the process's exit status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Everything requested was done.
    Ok = 0,
    /// Usage, configuration or connection was wrong; nothing was measured.
    Usage = 1,
    /// Errors happened during the run; a partial result is written.
    Errors = 2,
    /// `verify` or `prove` found a difference.
    Difference = 3,
    /// A service level objective was missed.
    SloMissed = 4,
    /// The run proves nothing about the target: the client was the limit, an agent was lost, clocks disagree.
    Invalid = 5,
    /// The preflight check failed.
    Preflight = 6,
    /// `compare` found a regression.
    Regression = 7,
    /// `compare` cannot tell.
    CannotTell = 8,
    /// Interrupted by the user (128 + SIGINT); a partial report is written.
    Interrupted = 130,
}

impl Exit {
    /// Every exit code with its meaning, for help texts and documentation.
    pub const ALL: [(Exit, &'static str); 10] = [
        (Exit::Ok, "ok"),
        (Exit::Usage, "usage, configuration or connection error"),
        (Exit::Errors, "errors during the run, partial result written"),
        (Exit::Difference, "verify or prove found a difference"),
        (Exit::SloMissed, "SLO missed"),
        (Exit::Invalid, "run invalid: the client was the limit, an agent was lost, or clocks disagree"),
        (Exit::Preflight, "preflight failed"),
        (Exit::Regression, "regression"),
        (Exit::CannotTell, "cannot tell"),
        (Exit::Interrupted, "interrupted, partial report written"),
    ];

    /// The process's exit status.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 130]);
    }
}
