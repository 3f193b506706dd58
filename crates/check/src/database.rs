//! Settings, schema and state of one node, as its catalogs and views show them.

use connect::control::Control;
use record::check::Item;

/// Checks the node that `control` is connected to; `node` is its name in the items.
pub fn check(node: &str, control: &mut Control) -> Vec<Item> {
    let _ = (node, control);
    vec![]
}
