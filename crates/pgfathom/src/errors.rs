//! Where the libraries' own hints enter: every error type that a verb can end with.

use crate::failure::Explained;

macro_rules! explained {
    ($($error:ty),+ $(,)?) => {
        $(impl Explained for $error {
            fn hint(&self) -> Option<String> {
                <$error>::hint(self)
            }
        })+
    };
}

explained!(record::RecordError);
