//! The format of a service's events, which an application chose, and events' data read by it.
//!
//! The input is the format's text, a 0, and data. Always: the fields lie one behind the other
//! within an event's data, whatever the data's length is it is read without a panic, and numbers
//! that are read and written again are the same bytes.

use ecalls::format::{Format, Kind, Value};
use ecalls_abi::text;
use ecalls_abi::version::DATA_MAX;

pub(crate) fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0);
    let (format, data) = bytes.split_at(end.unwrap_or(bytes.len()));
    let data = data.get(1..).unwrap_or(&[]);
    let Ok(format) = Format::parse(text::read(format)) else {
        return;
    };
    check_places(&format);
    for (field, value) in format.read(data) {
        assert!(field.offset + field.size * field.count <= data.len());
        assert!(value.to_string().len() <= 3 * 4 * DATA_MAX);
    }
    write_again(&format, data);
}

fn check_places(format: &Format) {
    let mut end = 0;
    for field in &format.fields {
        assert!(field.offset >= end && field.offset % field.size == 0);
        assert!(field.count >= 1 && !field.name.is_empty());
        end = field.offset + field.size * field.count;
    }
    assert_eq!(end, format.size());
    assert!(end <= DATA_MAX);
}

/// Writing what was read gives the same bytes, where the text has a form for each value.
fn write_again(format: &Format, data: &[u8]) {
    let read: Vec<_> = format
        .read(data)
        .map(|(field, value)| (field, value.to_string(), value))
        .collect();
    for (at, (field, shown, value)) in read.iter().enumerate() {
        // Of two fields of one name the first is meant.
        let is_first = read[..at]
            .iter()
            .all(|(other, ..)| other.name != field.name);
        let written = format.write([(field.name.as_str(), shown.as_str())]);
        if let (Value::Text(text), Kind::Text) = (value, field.kind) {
            let _ = (text, written);
            continue;
        }
        if is_first {
            let place = field.offset..field.offset + field.size * field.count;
            let written = written.expect("a number that was read fits");
            assert_eq!(written[place.clone()], data[place], "{}", field.name);
        }
    }
    let _ = format.write([("a", shown_anyhow(data))]);
}

fn shown_anyhow(data: &[u8]) -> &str {
    text::read(data)
}
