//! A small validator of JSON schemas, for the part of the language that `schema/` uses. It remembers which properties were used.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One schema document, and the property paths of it that instances have used.
pub(crate) struct Schema {
    root: Value,
    pub(crate) seen: BTreeSet<String>,
}

impl Schema {
    pub(crate) fn load(name: &str) -> Schema {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema").join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Schema { root: serde_json::from_str(&text).expect("the schema is JSON"), seen: BTreeSet::new() }
    }

    pub(crate) fn validate(&mut self, instance: &Value) -> Result<(), String> {
        let root = self.root.clone();
        let mut seen = BTreeSet::new();
        self.check(&root, "", instance, "$", &mut seen)?;
        self.seen.extend(seen);
        Ok(())
    }

    /// Checks `instance` (found at `at`) against `schema` (found at `place`).
    fn check(
        &self,
        schema: &Value,
        place: &str,
        instance: &Value,
        at: &str,
        seen: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
            match keyword.as_str() {
                "$schema" | "title" | "description" | "$defs" | "required" | "additionalProperties" => {}
                "minItems" | "maxItems" => {}
                "prefixItems" => {
                    for (index, item) in wanted.as_array().expect("a list").iter().enumerate() {
                        let place = format!("{place}[{index}]");
                        self.check(item, &place, &instance[index], &format!("{at}[{index}]"), seen)?;
                    }
                }
                "$ref" => {
                    let name =
                        wanted.as_str().expect("text").strip_prefix("#/$defs/").expect("a local reference");
                    self.check(&self.root["$defs"][name], name, instance, at, seen)?;
                }
                "type" => {
                    let fits = |name: &Value| is_type(name.as_str().expect("text"), instance);
                    let ok = wanted.as_array().map_or_else(|| fits(wanted), |names| names.iter().any(fits));
                    check_that(ok, || format!("{at}: {instance} is not {wanted}"))?;
                }
                "const" => check_that(wanted == instance, || format!("{at}: {instance} is not {wanted}"))?,
                "enum" => {
                    let ok = wanted.as_array().expect("a list").contains(instance);
                    check_that(ok, || format!("{at}: {instance} is none of {wanted}"))?;
                }
                "not" => {
                    let ok = self.check(wanted, place, instance, at, &mut BTreeSet::new()).is_err();
                    check_that(ok, || format!("{at}: {instance} is excluded"))?;
                }
                "minimum" => {
                    let ok =
                        instance.as_f64().is_none_or(|number| number >= wanted.as_f64().expect("a number"));
                    check_that(ok, || format!("{at}: {instance} is below {wanted}"))?;
                }
                "items" => {
                    for (index, item) in instance.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, &format!("{place}[]"), item, &format!("{at}[{index}]"), seen)?;
                    }
                }
                "oneOf" | "anyOf" => {
                    let mut good = vec![];
                    let mut errors = vec![];
                    for option in wanted.as_array().expect("a list") {
                        let mut branch = BTreeSet::new();
                        match self.check(option, place, instance, at, &mut branch) {
                            Ok(()) => good.push(branch),
                            Err(error) => errors.push(error),
                        }
                    }
                    check_that(good.len() == 1, || format!("{at}: {} of oneOf fit; {errors:?}", good.len()))?;
                    seen.extend(good.pop().unwrap_or_default());
                }
                "properties" => self.check_properties(schema, place, instance, at, seen)?,
                other => panic!("the test's validator does not know the keyword {other:?}"),
            }
        }
        Ok(())
    }

    fn check_properties(
        &self,
        schema: &Value,
        place: &str,
        instance: &Value,
        at: &str,
        seen: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let Some(object) = instance.as_object() else { return Ok(()) };
        for name in
            schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().expect("text"))
        {
            check_that(object.contains_key(name), || format!("{at}: {name} is missing"))?;
        }
        for (name, value) in object {
            let (inner, inner_at) = (format!("{place}.{name}"), format!("{at}.{name}"));
            match (schema["properties"].get(name), &schema["additionalProperties"]) {
                (Some(property), _) => {
                    seen.insert(inner.clone());
                    self.check(property, &inner, value, &inner_at, seen)?;
                }
                (None, Value::Bool(false)) => return Err(format!("{at}: {name} is not in the schema")),
                (None, Value::Object(_)) => {
                    self.check(&schema["additionalProperties"], &inner, value, &inner_at, seen)?;
                }
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Every property path the schema names.
    pub(crate) fn all_properties(&self) -> BTreeSet<String> {
        fn walk(schema: &Value, place: &str, found: &mut BTreeSet<String>) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let inner = format!("{place}.{name}");
                found.insert(inner.clone());
                walk(property, &inner, found);
            }
            if schema["items"].is_object() {
                walk(&schema["items"], &format!("{place}[]"), found);
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.root, "", &mut found);
        for (name, definition) in self.root["$defs"].as_object().into_iter().flatten() {
            walk(definition, name, &mut found);
        }
        found
    }
}

fn check_that(ok: bool, error: impl FnOnce() -> String) -> Result<(), String> {
    if ok { Ok(()) } else { Err(error()) }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the test's validator does not know the type {other:?}"),
    }
}
