//! Text that must not be seen.

use std::fmt;

/// A password. It never shows in `Debug` or `Display`; who needs it calls [`Secret::reveal`].
///
/// Nothing is wiped from memory on drop: the allocator, TLS and the kernel have made copies by then, and a promise that cannot
/// be kept is none.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one who sends it to the server.
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
