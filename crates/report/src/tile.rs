//! A large number at the top of a page.

/// A number worth a big letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    /// What it is of.
    pub(crate) label: String,
    /// The number, as short as it may be.
    pub(crate) value: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Additional information.
    pub(crate) detail: String,
    /// Key of its step.
    pub(crate) key: String,
}
