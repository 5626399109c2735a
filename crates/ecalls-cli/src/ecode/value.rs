//! E-code's data as JSON: `--event` becomes the bytes of the input, and the bytes of the output
//! become JSON. Strings are text, `fixed` is a number with decimals, structs are objects, arrays
//! are arrays; values that are not given are 0.

use ::ecode::types::{FIXED_ONE, Int, Structs, Type};
use serde_json::{Map, Number, Value};

/// Writes a value at the place of its type. The error names the field and what was expected.
pub(crate) fn write(
    structs: &Structs,
    ty: &Type,
    value: &Value,
    bytes: &mut [u8],
) -> Result<(), String> {
    match ty {
        Type::Struct(at) => {
            let Value::Object(fields) = value else {
                return Err(expected("an object", value));
            };
            let layout = &structs.all[*at];
            for (name, value) in fields {
                let Some(field) = layout.field(name) else {
                    let known: Vec<_> = layout.fields.iter().map(|f| f.name.as_str()).collect();
                    return Err(format!(
                        "no field is named '{name}'; the fields are: {}",
                        known.join(", ")
                    ));
                };
                let size = structs.size(&field.ty).unwrap_or_default() as usize;
                let place = &mut bytes[field.offset as usize..][..size];
                write(structs, &field.ty, value, place).map_err(|e| format!("{name}: {e}"))?;
            }
            Ok(())
        }
        Type::Array(_, count) if ty.is_text() && value.is_string() => {
            let text = value.as_str().unwrap_or_default();
            if text.len() > *count as usize {
                return Err(format!(
                    "{} bytes are given, at most {count} fit",
                    text.len()
                ));
            }
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Ok(())
        }
        Type::Array(of, count) => {
            let Value::Array(elements) = value else {
                return Err(expected("an array", value));
            };
            if elements.len() > *count as usize {
                return Err(format!(
                    "{} elements are given, at most {count} fit",
                    elements.len()
                ));
            }
            let size = structs.size(of).unwrap_or_default() as usize;
            for (at, element) in elements.iter().enumerate() {
                let place = &mut bytes[at * size..][..size];
                write(structs, of, element, place).map_err(|e| format!("[{at}]: {e}"))?;
            }
            Ok(())
        }
        _ => {
            let word = scalar(ty, value)?;
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            Ok(())
        }
    }
}

/// A scalar from JSON, as its 64 bits.
fn scalar(ty: &Type, value: &Value) -> Result<i64, String> {
    match (ty, value) {
        (Type::Bool, Value::Bool(value)) => Ok(i64::from(*value)),
        (Type::Fixed, Value::Number(number)) => fixed(number),
        (Type::Int(int), Value::Number(number)) => integer(*int, number),
        (Type::Bool, _) => Err(expected("true or false", value)),
        _ => Err(expected("a number", value)),
    }
}

fn integer(int: Int, number: &Number) -> Result<i64, String> {
    let word = number
        .as_i64()
        .or_else(|| number.as_u64().map(|n| n as i64));
    let fits = word.is_some_and(|word| {
        int.wrap(word) == word
            && (int.signed || int.bits < 64 || number.is_u64())
            && !(int.signed && number.as_i64().is_none())
    });
    match word {
        Some(word) if fits => Ok(word),
        _ => {
            let sign = if int.signed { "" } else { "unsigned " };
            Err(format!(
                "{number} does not fit into {sign}{} bits",
                int.bits
            ))
        }
    }
}

/// A `fixed` from the digits of a JSON number, exactly; it may have an exponent.
fn fixed(number: &Number) -> Result<i64, String> {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, mantissa),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, decimals].concat();
    // The number is `significant` * 10^`power` millionths.
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    let zeros = all.len() - all.trim_end_matches('0').len();
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX);
    let power = exponent.saturating_add(6 + zeros as i64 - decimals.len() as i64);
    if power < 0 {
        return Err(format!("{number} has more than 6 decimals"));
    }
    let beyond =
        || format!("{number} is outside the range of 'fixed', which ends at 9223372036854.775807");
    let power = u32::try_from(power).map_err(|_| beyond())?;
    let scale = 10i128.checked_pow(power).ok_or_else(beyond)?;
    let millionths = significant.parse::<i128>().ok();
    let millionths = millionths.and_then(|n| (n * sign).checked_mul(scale));
    let millionths = millionths.and_then(|n| i64::try_from(n).ok());
    millionths.ok_or_else(beyond)
}

fn expected(what: &str, value: &Value) -> String {
    let given = value.to_string();
    let given: String = given.chars().take(40).collect();
    format!("{given} is given, expected {what}")
}

/// Reads a value at the place of its type.
pub(crate) fn read(structs: &Structs, ty: &Type, bytes: &[u8]) -> Value {
    match ty {
        Type::Struct(at) => {
            let mut object = Map::new();
            for field in &structs.all[*at].fields {
                let size = structs.size(&field.ty).unwrap_or_default() as usize;
                let place = &bytes[field.offset as usize..][..size];
                object.insert(field.name.clone(), read(structs, &field.ty, place));
            }
            Value::Object(object)
        }
        Type::Array(..) if ty.is_text() => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            Value::String(String::from_utf8_lossy(&bytes[..end]).into_owned())
        }
        Type::Array(of, _) => {
            let size = structs.size(of).unwrap_or_default() as usize;
            let elements = bytes.chunks_exact(size.max(1));
            Value::Array(elements.map(|element| read(structs, of, element)).collect())
        }
        _ => show(ty, word(bytes)),
    }
}

fn word(bytes: &[u8]) -> i64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(all)
}

/// A scalar as JSON, from its bits.
pub(crate) fn show(ty: &Type, word: i64) -> Value {
    match ty {
        Type::Bool => Value::Bool(word & 0xff != 0),
        Type::Int(int) if int.signed => Value::from(int.wrap(word)),
        Type::Int(int) => Value::from(int.wrap(word) as u64),
        Type::Fixed => decimal(word),
        _ => Value::from(word),
    }
}

/// A `fixed` as a JSON number with all its digits.
pub(crate) fn decimal(word: i64) -> Value {
    let (whole, rest) = (word / FIXED_ONE, (word % FIXED_ONE).unsigned_abs());
    let sign = if word < 0 && whole == 0 { "-" } else { "" };
    let decimals = format!("{rest:06}");
    let decimals = decimals.trim_end_matches('0');
    let decimals = if decimals.is_empty() { "0" } else { decimals };
    let text = format!("{sign}{whole}.{decimals}");
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> (Structs, Type) {
        let mut structs = Structs::default();
        let text = Type::Array(Box::new(Type::Int(Int::CHAR)), 8);
        let list = Type::Array(Box::new(Type::Int(Int::new(16, true))), 3);
        let fields = [
            ("comm".to_owned(), text),
            ("port".to_owned(), Type::Int(Int::new(16, false))),
            ("load".to_owned(), Type::Fixed),
            ("list".to_owned(), list),
            ("on".to_owned(), Type::Bool),
        ];
        let layout = structs.lay_out("input", &fields).expect("small");
        structs.all.push(layout);
        (structs, Type::Struct(0))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (structs, ty) = record();
        let mut bytes = vec![0; structs.size(&ty).expect("small") as usize];
        let value =
            json!({"comm": "bash", "port": 65535, "load": -0.25, "list": [1, -2, 3], "on": true});
        write(&structs, &ty, &value, &mut bytes).expect("it fits");
        assert_eq!(read(&structs, &ty, &bytes), value);
    }

    #[test]
    fn numbers_with_decimals_are_exact_in_both_directions() {
        for (written, millionths, shown) in [
            ("0.000001", 1, "0.000001"),
            ("1e-6", 1, "0.000001"),
            ("-1.5E+3", -1_500_000_000, "-1500.0"),
            ("0.5000000000", 500_000, "0.5"),
            ("0e400", 0, "0.0"),
            ("-0.25", -250_000, "-0.25"),
            (
                "9007199254.740993",
                9_007_199_254_740_993,
                "9007199254.740993",
            ),
            ("9223372036854.775807", i64::MAX, "9223372036854.775807"),
            ("-9223372036854.775808", i64::MIN, "-9223372036854.775808"),
        ] {
            let value: Value = serde_json::from_str(written).expect("JSON");
            let word = scalar(&Type::Fixed, &value);
            assert_eq!(word, Ok(millionths), "{written}");
            assert_eq!(show(&Type::Fixed, millionths).to_string(), shown);
        }
        for beyond in ["9223372036854.775808", "-9223372036854.775809"] {
            let value: Value = serde_json::from_str(beyond).expect("JSON");
            let told = scalar(&Type::Fixed, &value).expect_err("it does not fit");
            assert!(told.contains("outside the range of 'fixed'"), "{told}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let (structs, ty) = record();
        let mut bytes = vec![0; structs.size(&ty).expect("small") as usize];
        for (value, says) in [
            (
                json!({"port": 65536}),
                "port: 65536 does not fit into unsigned 16 bits",
            ),
            (json!({"port": -1}), "port: -1 does not fit into unsigned"),
            (
                json!({"list": [1, 2, 3, 4]}),
                "list: 4 elements are given, at most 3 fit",
            ),
            (
                json!({"list": [1, "a"]}),
                "list: [1]: \"a\" is given, expected a number",
            ),
            (
                json!({"comm": "far too long"}),
                "comm: 12 bytes are given, at most 8 fit",
            ),
            (
                json!({"prt": 1}),
                "no field is named 'prt'; the fields are: comm, port",
            ),
            (json!({"load": 0.1234567}), "more than 6 decimals"),
            (json!({"load": 1e-7}), "more than 6 decimals"),
            (json!({"load": 1e13}), "is outside the range"),
            (json!({"load": 1e300}), "is outside the range"),
            (json!(3), "3 is given, expected an object"),
        ] {
            let error = write(&structs, &ty, &value, &mut bytes).expect_err("it does not fit");
            assert!(error.contains(says), "{error}");
        }
    }
}
