//! How rows get into their tables.

/// How rows get into their tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// Chunks of rows, one transaction each, logged: any number of streams, resumes chunk by chunk.
    #[default]
    Copy,
    /// Leaf by leaf: each is truncated, filled and frozen in one transaction. Nothing has to be frozen later, no WAL is written when
    /// `wal_level = minimal`; at most one stream per leaf, resumes leaf by leaf.
    Freeze,
}

impl Method {
    /// The word for it on the command line and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Copy => "copy",
            Method::Freeze => "freeze",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is neither `copy` nor `freeze`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown method \"{0}\": expected copy or freeze")]
pub struct MethodError(String);

impl std::str::FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "copy" => Ok(Method::Copy),
            "freeze" => Ok(Method::Freeze),
            _ => Err(MethodError(text.to_owned())),
        }
    }
}

/// Which way rows take to the nodes of a cluster that they are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Via {
    /// Each row straight to its leaf table on the node that owns it.
    #[default]
    Owner,
    /// All rows into the parent table on the first node, which sends them on: the slow way, as a control.
    Connect,
    /// The streams enter at all nodes in turn, where the engine brings rows to their nodes and every node has the ledger. It is a way of one load and
    /// not kept with the dataset.
    Each,
}

impl Via {
    /// The word for it on the command line and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Via::Owner => "owner",
            Via::Connect => "connect",
            Via::Each => "each",
        }
    }
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the ways.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown value \"{0}\": expected owner, connect or each")]
pub struct ViaError(String);

impl std::str::FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "owner" => Ok(Via::Owner),
            "connect" => Ok(Via::Connect),
            "each" => Ok(Via::Each),
            _ => Err(ViaError(text.to_owned())),
        }
    }
}
