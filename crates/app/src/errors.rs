//! Where the libraries' own hints enter: every error type that a verb can end with.

use crate::failure::Explained;
use record::Exit;

macro_rules! explained {
    ($($error:ty),+ $(,)?) => {
        $(impl Explained for $error {
            fn hint(&self) -> Option<String> {
                <$error>::hint(self)
            }
        })+
    };
}

explained!(
    record::RecordError,
    ::plan::PlanError,
    ::report::ComparedError,
    run::script::ScriptError,
    engines::ClusterError,
    connect::ConnectError,
    engines::PlacementError,
    connect::conninfo::ConninfoError,
    lab::local::LocalError,
    connect::cluster_file::ClusterFileError,
    ::watch::bundle::BundleError,
    ::check::hosts::HostsError,
    ::check::accept::AcceptError,
);

impl Explained for postgres::WrongReply {
    fn hint(&self) -> Option<String> {
        const HINT: &str = "check that a PostgreSQL server listens there, and nothing between that changes its replies; if both are so, report it as a bug";
        Some(HINT.to_owned())
    }

    fn exit(&self) -> Exit {
        Exit::Errors
    }
}

impl Explained for workloads::driving::Refusal {
    fn hint(&self) -> Option<String> {
        workloads::driving::Refusal::hint(self)
    }

    fn exit(&self) -> Exit {
        match self {
            workloads::driving::Refusal::Load(error) => error.exit(),
            _ => Exit::Usage,
        }
    }
}

impl Explained for run::drive::DriveError {
    fn hint(&self) -> Option<String> {
        run::drive::DriveError::hint(self)
    }

    fn exit(&self) -> Exit {
        match self {
            run::drive::DriveError::Interrupted => Exit::Interrupted,
            run::drive::DriveError::BrokeDown(_) => Exit::Errors,
            _ => Exit::Usage,
        }
    }
}

impl Explained for prove::conditions::ProveError {
    fn hint(&self) -> Option<String> {
        prove::conditions::ProveError::hint(self)
    }

    /// Whatever happens before there is an answer leaves none.
    fn exit(&self) -> Exit {
        use prove::conditions::ProveError::{Connect, Empty, Interrupted, NoTable, NotATable, OnNode};
        match self {
            Connect(_) | NoTable { .. } | NotATable { .. } | Empty { .. } => Exit::Usage,
            OnNode { source, .. } => source.exit(),
            Interrupted => Exit::Interrupted,
            _ => Exit::CannotTell,
        }
    }
}

impl Explained for prove::history::HistoryError {
    fn hint(&self) -> Option<String> {
        prove::history::HistoryError::hint(self)
    }
}

impl Explained for prove::hermitage::HermitageError {
    fn hint(&self) -> Option<String> {
        prove::hermitage::HermitageError::hint(self)
    }

    /// As for the other proofs: there is no answer if what was set up went away.
    fn exit(&self) -> Exit {
        use prove::hermitage::HermitageError::{Live, Refused, Session};
        match self {
            Live(error) => error.exit(),
            Session(prove::session::SessionError::Connect(_)) | Refused { .. } => Exit::Usage,
            _ => Exit::CannotTell,
        }
    }
}

impl Explained for prove::live::LiveError {
    fn hint(&self) -> Option<String> {
        prove::live::LiveError::hint(self)
    }

    /// What cannot be connected to, or may not be used, is the user's to correct; everything else leaves no answer.
    fn exit(&self) -> Exit {
        use prove::client::ClientError;
        use prove::live::LiveError::{Client, EventTrigger, Foreign, Taken, Unfit};
        match self {
            Client(ClientError::Connect(_)) | Foreign(_) | EventTrigger(_) | Taken { .. } | Unfit(_) => {
                Exit::Usage
            }
            // A right that the role lacks: nothing was begun.
            Client(ClientError::Refused { error, .. }) if &error.sqlstate.0 == b"42501" => Exit::Usage,
            _ => Exit::CannotTell,
        }
    }
}

impl Explained for prove::fault::FaultError {
    fn hint(&self) -> Option<String> {
        prove::fault::FaultError::hint(self)
    }
}

impl Explained for load::LoadError {
    fn hint(&self) -> Option<String> {
        load::LoadError::hint(self)
    }

    /// What stops a load after rows were committed leaves a partial result; what is refused before leaves nothing.
    fn exit(&self) -> Exit {
        use load::LoadError::{
            Behind, DiskFull, Interrupted, NodeAway, NotAwaited, Protocol, RowCount, ServerLost, Stream,
            TooManyAttempts,
        };
        match self.innermost() {
            Interrupted | NotAwaited { .. } => Exit::Interrupted,
            Behind { .. }
            | DiskFull { .. }
            | Protocol { .. }
            | RowCount { .. }
            | ServerLost { .. }
            | Stream { .. }
            | NodeAway { .. }
            | TooManyAttempts { .. } => Exit::Errors,
            _ => Exit::Usage,
        }
    }
}

impl Explained for load::verify::VerifyError {
    fn hint(&self) -> Option<String> {
        load::verify::VerifyError::hint(self)
    }

    /// A verification that broke off proved nothing.
    fn exit(&self) -> Exit {
        use load::verify::VerifyError::{Answer, Copy, Interrupted, Lost, Protocol, Server};
        match self {
            Answer { .. } | Copy { .. } | Lost { .. } | Protocol { .. } | Server { .. } => Exit::Errors,
            Interrupted => Exit::Interrupted,
            _ => Exit::Usage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prove::hermitage::HermitageError;
    use prove::live::LiveError;

    /// Whatever keeps a proof from an answer, it cannot tell; a wrong address is an error of the user.
    #[test]
    fn scripts_end_like_other_proofs_where_replication_does_not_work() {
        let deaf = || LiveError::Deaf("node m2 does not receive from m1".to_owned());
        assert_eq!(HermitageError::from(deaf()).exit(), deaf().exit());
        assert_eq!(HermitageError::from(deaf()).exit(), Exit::CannotTell);
        assert_eq!(HermitageError::Io(std::io::ErrorKind::TimedOut.into()).exit(), Exit::CannotTell);
        let refused = HermitageError::Refused { doing: "making the table", message: String::new() };
        assert_eq!(refused.exit(), Exit::Usage);
    }
}
