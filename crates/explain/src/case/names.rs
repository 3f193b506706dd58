//! Names that stand in commands.

use record::statement;
use record::watched::{COLUMN_KINDS, Fact, NO_STATISTICS, PECULIAR, TEMPORARY};
use serde_json::{Map, Value};

/// Topics of facts whose name is a relation, as the server quotes it.
const OF_RELATIONS: [&str; 4] = [PECULIAR, COLUMN_KINDS, TEMPORARY, NO_STATISTICS];
/// Fields with one, which stand in commands as they are.
const RELATIONS: [&str; 3] = ["relation", "row_of", "partition_of"];

/// The same for a fact about a relation.
pub(super) fn of_fact(fact: &mut Fact) {
    if OF_RELATIONS.contains(&fact.topic.as_str()) {
        fact.name = statement::as_name(&fact.name).into_owned();
    }
}

/// A record may come from others: what should be a name in commands becomes one.
pub(super) fn only(values: &mut Map<String, Value>) {
    for field in RELATIONS {
        if let Some(Value::String(text)) = values.get_mut(field)
            && !statement::is_name(text)
        {
            *text = statement::as_name(text).into_owned();
        }
    }
}
