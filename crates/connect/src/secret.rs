//! Text that must not be seen.

use std::fmt;

/// A password. `Debug` and `Display` never show it; [`Secret::reveal`] returns it.
///
/// Dropping it does not wipe the memory: the allocator, TLS and the kernel have made copies by then, so that could not be
/// guaranteed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, to send it to the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is no text; libpq takes an empty password for none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        let secret = Secret::new("tiger");
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)), "*** *** Some(\n    ***,\n)");
        assert_eq!(secret.reveal(), "tiger");
    }
}
