//! The event and surroundings of a run: the JSON of `--event` becomes a [`Setting`].

use ::ecode::Checked;
use ::ecode::limits::{ATTRIBUTES, SINKS};
use ::ecode::tree::EventField;
use ::ecode::trial::{Setting, Sink};
use serde_json::Value;

use super::value;

/// Names of constants, attributes and the like that JSON may use for numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) attributes: &'a [String],
    pub(crate) sinks: &'a [String],
}

/// Parses the value of `--event`: `{"input": {...}, "event": {"pid": 1}, "now": 5, "random": 7,
/// "attributes": {"load": 3}, "sinks": [{"id": 1, "age": 5, "load": 3}]}`; an object without any of
/// these keys is the input.
pub(crate) fn take(
    setting: &mut Setting,
    checked: &Checked,
    names: &Names<'_>,
    given: &Value,
) -> Result<(), String> {
    const PARTS: [&str; 6] = ["input", "event", "now", "random", "attributes", "sinks"];
    let Value::Object(parts) = given else {
        return Err(format!("{given} is no JSON object"));
    };
    if !parts.keys().any(|key| PARTS.contains(&key.as_str())) {
        return take_input(setting, checked, given);
    }
    for (part, given) in parts {
        match part.as_str() {
            "input" => take_input(setting, checked, given),
            "event" => take_event(setting, given),
            "now" => unsigned(given).map(|now| setting.now_ns = now),
            "random" => unsigned(given).map(|random| setting.random = random.max(1)),
            "attributes" => fill(names.attributes, given, &mut setting.attributes, &[]),
            "sinks" => take_sinks(setting, names.sinks, given),
            _ => Err(format!(
                "--event has no such key; its keys are: {}",
                PARTS.join(", ")
            )),
        }
        .map_err(|error| format!("{part}: {error}"))?;
    }
    Ok(())
}

fn take_input(setting: &mut Setting, checked: &Checked, given: &Value) -> Result<(), String> {
    let tree = &checked.tree;
    let Some(input) = tree.input else {
        return match given {
            Value::Object(fields) if fields.is_empty() => Ok(()),
            _ => Err("the text has no input: declare struct input, or name a service".into()),
        };
    };
    let ty = &tree.variables[input.0 as usize].ty;
    value::write(&tree.structs, ty, given, setting.data())
}

fn take_event(setting: &mut Setting, given: &Value) -> Result<(), String> {
    let Value::Object(fields) = given else {
        return Err(format!("{given} is no JSON object"));
    };
    for (name, given) in fields {
        let field = EventField::ALL.iter().find(|(known, _)| known == name);
        let Some((_, field)) = field else {
            let known: Vec<_> = EventField::ALL.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "no field is named '{name}'; the fields are: {}",
                known.join(", ")
            ));
        };
        let number = unsigned(given).map_err(|error| format!("{name}: {error}"))?;
        setting.set_event(*field, number as i64);
    }
    Ok(())
}

fn take_sinks(setting: &mut Setting, names: &[String], given: &Value) -> Result<(), String> {
    let Value::Array(sinks) = given else {
        return Err(format!("{given} is no JSON array"));
    };
    if sinks.len() > SINKS as usize {
        return Err(format!(
            "{} sinks are given, at most {SINKS} are possible",
            sinks.len()
        ));
    }
    for (number, given) in (0..).zip(sinks) {
        let mut attributes = vec![0; ATTRIBUTES as usize];
        fill(names, given, &mut attributes, &["id", "age"])?;
        let sink = Sink {
            id: given.get("id").map_or(Ok(u64::from(number)), unsigned)?,
            age_ns: given.get("age").map_or(Ok(0), unsigned)?,
            attributes,
        };
        setting.sinks.insert(number, sink);
    }
    Ok(())
}

fn unsigned(given: &Value) -> Result<u64, String> {
    let number = given
        .as_u64()
        .or_else(|| given.as_i64().map(|number| number as u64));
    number.ok_or_else(|| format!("{given} is no whole number"))
}

/// Sets attributes by name. Keys in `others` are permitted and skipped.
fn fill(
    names: &[String],
    given: &Value,
    values: &mut [i64],
    others: &[&str],
) -> Result<(), String> {
    let Value::Object(given) = given else {
        return Err(format!("{given} is no JSON object"));
    };
    for (name, given) in given {
        match names.iter().position(|known| known == name) {
            Some(at) if at < values.len() => {
                values[at] = unsigned(given).map_err(|error| format!("{name}: {error}"))? as i64;
            }
            None if others.contains(&name.as_str()) => {}
            _ => {
                let names = names.join(", ");
                return Err(format!(
                    "no attribute is named '{name}'; the attributes are: {names}"
                ));
            }
        }
    }
    Ok(())
}
