//! Why a benchmark cannot be driven here, and what to type next.

/// Why a benchmark cannot be driven here.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A reason of the benchmark's own.
    #[error("{message}")]
    Own {
        /// What is wrong.
        message: String,
        /// What to type next.
        hint: Option<String>,
        /// What it follows from.
        #[source]
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The ledger or the tables of the dataset.
    #[error(transparent)]
    Load(#[from] load::LoadError),
    /// The cluster's catalog.
    #[error(transparent)]
    Placement(#[from] engines::PlacementError),
}

impl Refusal {
    /// With this message.
    pub fn new(message: impl Into<String>) -> Refusal {
        Refusal::Own { message: message.into(), hint: None, cause: None }
    }

    /// The same with what to type next; errors of libraries have hints of their own.
    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Refusal {
        match self {
            Refusal::Own { message, cause, .. } => Refusal::Own { message, hint: Some(hint.into()), cause },
            other => other,
        }
    }

    /// The same with what it follows from.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Refusal {
        match self {
            Refusal::Own { message, hint, .. } => Refusal::Own { message, hint, cause: Some(cause.into()) },
            other => other,
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Refusal::Own { hint, .. } => hint.clone(),
            Refusal::Load(error) => error.hint(),
            Refusal::Placement(error) => error.hint(),
        }
    }
}
