//! The JSON schemas in `schema/` are derived from the types of this crate. `PGFATHOM_BLESS=1 cargo test -p pgfathom-record schemas` writes
//! them anew; the difference is for the reviewer. That what is written fits them, `tests/schema.rs` checks.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::check::Checks;
use crate::event::Event;
use crate::finding::{self, Findings};
use crate::model::Run;
use crate::plan::{self, Plan};
use crate::sample::{ClientSample, ProgressSample, SOURCE_CLIENT, SOURCE_LOAD, SOURCE_VERIFY};
use crate::watched::Sampled;
use crate::{SCHEMA_VERSION, writer};

/// What a line of `samples.ndjson` has, whatever its source.
#[derive(JsonSchema, serde::Serialize)]
struct Line {
    /// End of the interval, since the start of the run.
    t_us: u64,
    /// Its length; 0: a reading of a moment.
    interval_us: u64,
    /// Key of the step, if it belongs to one.
    #[serde(skip_serializing_if = "String::is_empty")]
    step: String,
}

/// The schema of what `T` writes.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Leaves out the widths of numbers and the values of absent fields, and the null of fields that are absent instead; closes every object
/// that does not say that it is open.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(keywords) => {
            keywords.remove("default");
            keywords.remove("format");
            let required = keywords.get("required").cloned().unwrap_or_default();
            let is_required = |name: &str| required.as_array().is_some_and(|all| all.contains(&json!(name)));
            if let Some(properties) = keywords.get_mut("properties").and_then(Value::as_object_mut) {
                for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
                    without_null(property);
                }
                // A field may be called like a keyword.
                properties.values_mut().for_each(tidy);
                keywords.entry("additionalProperties").or_insert(json!(false));
            }
            for (_, value) in keywords.iter_mut().filter(|(name, _)| *name != "properties") {
                tidy(value);
            }
        }
        _ => {}
    }
}

fn without_null(property: &mut Value) {
    let Some(keywords) = property.as_object_mut() else { return };
    if let Some(types) = keywords.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            keywords.insert("type".to_string(), one);
        }
    }
    if let Some(Value::Array(mut options)) = keywords.remove("anyOf") {
        options.retain(|option| option["type"] != "null");
        match options.as_slice() {
            [Value::Object(one)] => keywords.extend(one.clone()),
            _ => {
                keywords.insert("anyOf".to_string(), options.into());
            }
        }
    }
}

/// A property must have this value.
fn fix(schema: &mut Value, name: &str, value: Value) {
    schema["properties"][name]["const"] = value;
}

fn titled(schema: &mut Value, title: &str) {
    schema["title"] = json!(format!("pgfathom {title}, schema version {SCHEMA_VERSION}"));
}

/// A file of lines: a header, then lines of these kinds.
fn lines(name: &str, schema: &str, kinds: Vec<(String, Value)>) -> Value {
    let mut header = of::<writer::Header>();
    fix(&mut header, "schema", json!(schema));
    fix(&mut header, "schema_version", json!(SCHEMA_VERSION));
    let kinds = std::iter::once(("header".to_string(), header)).chain(kinds);
    let mut definitions = Map::new();
    for (name, mut kind) in kinds {
        kind.as_object_mut().expect("an object").remove("$schema");
        definitions.insert(name, kind);
    }
    let references: Vec<Value> =
        definitions.keys().map(|name| json!({"$ref": format!("#/$defs/{name}")})).collect();
    let mut file = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": references, "$defs": definitions});
    titled(&mut file, &format!("{name}: each line"));
    file
}

/// A line of a source: what every line has, and the fields of its own.
fn line(sources: &[&str], mut body: Value) -> Value {
    let frame = of::<Line>();
    let mut properties = frame["properties"].as_object().expect("an object").clone();
    let source = if let [one] = sources { json!({"const": one}) } else { json!({"enum": sources}) };
    properties.insert("source".to_string(), source);
    properties
        .extend(body["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    let mut required = vec![json!("t_us"), json!("interval_us"), json!("source")];
    required.extend(body["required"].as_array().into_iter().flatten().cloned());
    body["properties"] = properties.into();
    body["required"] = required.into();
    body
}

fn samples() -> Value {
    let mut kinds = vec![
        (SOURCE_CLIENT.to_string(), line(&[SOURCE_CLIENT], of::<ClientSample>())),
        ("progress".to_string(), line(&[SOURCE_LOAD, SOURCE_VERIFY], of::<ProgressSample>())),
    ];
    let mut known = vec![SOURCE_CLIENT, SOURCE_LOAD, SOURCE_VERIFY];
    for (source, schema) in Sampled::schemas() {
        kinds.push((format!("watch_{source}"), line(&[source], schema)));
        known.push(source);
    }
    let flat = json!({"type": ["number", "string", "boolean", "null"]});
    let about = "Sources of other versions: flat, named values.";
    let other = json!({"type": "object", "description": about, "additionalProperties": flat});
    let mut other = line(&[], other);
    other["properties"]["source"] = json!({"type": "string", "not": {"enum": known}});
    kinds.push(("other".to_string(), other));
    lines("samples.ndjson", writer::SAMPLES_SCHEMA, kinds)
}

fn events() -> Value {
    let mut event = of::<Event>();
    event["additionalProperties"] = json!({"type": ["number", "string", "boolean", "null"]});
    lines("events.ndjson", writer::EVENTS_SCHEMA, vec![("event".to_string(), event)])
}

fn findings() -> Value {
    let mut schema = of::<Findings>();
    fix(&mut schema, "schema", json!(finding::SCHEMA));
    fix(&mut schema, "schema_version", json!(SCHEMA_VERSION));
    titled(&mut schema, "findings.json");
    schema
}

fn check() -> Value {
    let mut schema = of::<Checks>();
    fix(&mut schema, "schema", json!(SCHEMA_VERSION));
    titled(&mut schema, "check.json");
    schema
}

fn run() -> Value {
    let mut schema = of::<Run>();
    fix(&mut schema, "schema_version", json!(SCHEMA_VERSION));
    titled(&mut schema, "run.json");
    schema
}

fn plan() -> Value {
    let mut schema = of::<Plan>();
    fix(&mut schema, "schema", json!(plan::SCHEMA));
    fix(&mut schema, "schema_version", json!(SCHEMA_VERSION));
    titled(&mut schema, "plan.json");
    schema
}

#[test]
fn schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    for (name, schema) in [
        ("run", run()),
        ("samples", samples()),
        ("events", events()),
        ("findings", findings()),
        ("check", check()),
        ("plan", plan()),
    ] {
        let path = folder.join(format!("{name}.schema.json"));
        let made = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
        if std::env::var("PGFATHOM_BLESS").is_ok_and(|value| value == "1") {
            std::fs::write(&path, &made).expect("the folder can be written");
        }
        let kept = std::fs::read_to_string(&path).expect("the schema is there");
        assert!(
            kept == made,
            "{name}.schema.json is not what the types say (PGFATHOM_BLESS=1 writes it anew)"
        );
    }
}
