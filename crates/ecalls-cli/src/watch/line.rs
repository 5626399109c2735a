//! One event as a line of text or as JSON.
//!
//! Names and the format, which all events of a service share, are read once.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use ecalls::format::Field;
use ecalls::{Event, Format, Value, now_ns};
use ecalls_abi::wire::Host;
use ecalls_kernel::stat::ServiceStat;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use crate::duration::show_ns;
use crate::ecode::value::decimal;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Prints the events of one service.
#[derive(Debug)]
pub(super) struct Lines {
    service: String,
    kinds: Vec<String>,
    format: Format,
    /// When the watch began: times in text lines are relative to it.
    start_ns: u64,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC when the watch began.
    wall_ns: u64,
    text: String,
}

#[derive(Debug, Serialize)]
struct Object<'a> {
    what: &'static str,
    time_ns: u64,
    raise_ns: u64,
    latency_ns: u64,
    service: &'a str,
    kind: &'a str,
    data: Data<'a>,
    raised_by: u32,
    tid: u32,
    /// It came from another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    uid: u32,
    cpu: u32,
    target: i32,
    r#type: u32,
    priority: u32,
    deadline_ns: u64,
    release_ns: u64,
    id: u64,
}

/// The fields of an event's data, in order, without padding.
#[derive(Debug)]
struct Data<'a> {
    format: &'a Format,
    event: &'a Event,
}

struct Number<'a>(&'a Value);

impl Serialize for Number<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Unsigned(value) => serializer.serialize_u64(*value),
            Value::Signed(value) => serializer.serialize_i64(*value),
            Value::Fixed(millionths) => decimal(*millionths).serialize(serializer),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&Number(value))?;
                }
                list.end()
            }
        }
    }
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in self.format.read(self.event.data_bytes()) {
            match address(field, &value) {
                _ if field.is_padding() => {}
                Some(ip) => map.serialize_entry(&field.name, &ip)?,
                None => map.serialize_entry(&field.name, &Number(&value))?,
            }
        }
        map.end()
    }
}

impl Lines {
    /// A printer for the events of this service, with data of this format.
    pub(super) fn new(service: &ServiceStat, format: &str) -> Result<Lines, Failure> {
        let start_ns = now_ns();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = wall.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
        Ok(Lines {
            service: service.info.name().to_owned(),
            kinds: service.info.kinds().map(str::to_owned).collect(),
            format: Format::parse(format)?,
            start_ns,
            wall_ns: wall_ns.saturating_sub(start_ns),
            text: String::new(),
        })
    }

    /// Prints an event that was read at `now_ns`.
    pub(super) fn print(&mut self, out: &mut Output, event: &Event, now_ns: u64) -> Outcome {
        let latency_ns = now_ns.saturating_sub(event.raise_ns.max(event.release_ns));
        let number;
        let kind = match self.kinds.get(event.kind as usize) {
            Some(name) => name,
            None => {
                number = event.kind.to_string();
                &number
            }
        };
        if out.is_json() {
            let format = &self.format;
            let (raised_by, tid) = event.process();
            return out.object(&Object {
                what: "event",
                time_ns: event.raise_ns.saturating_add(self.wall_ns),
                raise_ns: event.raise_ns,
                latency_ns,
                service: &self.service,
                kind,
                data: Data { format, event },
                raised_by,
                tid,
                host: event.host().map(|host| Host(host).to_string()),
                uid: event.uid,
                cpu: event.cpu,
                target: event.target,
                r#type: event.r#type,
                priority: event.priority,
                deadline_ns: event.deadline_ns,
                release_ns: event.release_ns,
                id: event.id,
            });
        }
        let since_ns = event.raise_ns.saturating_sub(self.start_ns);
        self.text.clear();
        let text = line(&mut self.text, &self.format, event);
        // Writing into a string does not fail.
        text.unwrap_or_default();
        let (seconds, micros) = (since_ns / 1_000_000_000, since_ns % 1_000_000_000 / 1000);
        let latency = show_ns(latency_ns);
        out.line(format_args!(
            "{seconds:>4}.{micros:06} {latency:>7}  {} {kind}{}",
            self.service, self.text
        ))
    }
}

/// ` by=42 cpu=1 port=80`: the raising process, or the host from which it came; the CPU, and the
/// data.
fn line(text: &mut String, format: &Format, event: &Event) -> fmt::Result {
    match event.host() {
        Some(host) => write!(text, " by={}", Host(host))?,
        None => write!(text, " by={}", event.pid)?,
    }
    write!(text, " cpu={}", event.cpu)?;
    for (field, value) in format.read(event.data_bytes()) {
        match value {
            _ if field.is_padding() => {}
            // The name of a thread can contain any byte, so control characters are escaped.
            Value::Text(value) => write!(text, " {}={}", field.name, value.escape_debug())?,
            value if field.name == "remote_ip4" => {
                write!(text, " {}={}", field.name, show_ip4(&value))?;
            }
            value => match address(field, &value) {
                Some(ip) => write!(text, " {}={ip}", field.name)?,
                None => write!(text, " {}={value}", field.name)?,
            },
        }
    }
    Ok(())
}

/// The address in a field `u8 ..._ip[16]`.
fn address(field: &Field, value: &Value) -> Option<IpAddr> {
    let Value::List(values) = value else {
        return None;
    };
    let byte = |value: &Value| match value {
        Value::Unsigned(byte) => u8::try_from(*byte).ok(),
        _ => None,
    };
    let bytes: Vec<u8> = values.iter().filter_map(byte).collect();
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    field
        .name
        .ends_with("_ip")
        .then(|| Ipv6Addr::from(bytes).to_canonical())
}

/// An IPv4 address in network byte order.
fn show_ip4(value: &Value) -> String {
    match value {
        Value::Unsigned(word) => {
            let [a, b, c, d, ..] = word.to_le_bytes();
            format!("{a}.{b}.{c}.{d}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::event::EVENT_HOST;

    fn event(data: &[u8]) -> Event {
        let mut event = Event::default();
        event.pid = 7;
        event.cpu = 1;
        event.set_data(data).expect("short data");
        event
    }

    #[test]
    fn data_is_shown_by_field_without_padding() {
        let format = Format::parse("u32 remote_ip4; u32 pad; char comm[4]").expect("a format");
        let event = event(&[127, 0, 0, 1, 9, 9, 9, 9, b'a', 27, 0, 0]);
        let mut text = String::new();
        line(&mut text, &format, &event).expect("a string");
        assert_eq!(text, " by=7 cpu=1 remote_ip4=127.0.0.1 comm=a\\u{1b}");
    }

    #[test]
    fn event_of_another_host_names_it_and_no_process() {
        let mut event = event(&[]);
        (event.flags, event.tid) = (EVENT_HOST, 0x0000_0200);
        let mut text = String::new();
        line(&mut text, &Format::default(), &event).expect("a string");
        assert_eq!(text, " by=0000:02-00-00-00-00-07 cpu=1");
        assert_eq!(event.process(), (0, 0));
    }

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let format = Format::parse("u8 local_ip[16]; u8 remote_ip[16]").expect("a format");
        let mut data = [0; 32];
        data[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        data[31] = 1;
        let event = event(&data);
        let mut text = String::new();
        line(&mut text, &format, &event).expect("a string");
        assert_eq!(text, " by=7 cpu=1 local_ip=10.0.0.1 remote_ip=::1");
        let data = Data {
            format: &format,
            event: &event,
        };
        let text = serde_json::to_string(&data).expect("an object");
        assert_eq!(text, r#"{"local_ip":"10.0.0.1","remote_ip":"::1"}"#);
    }

    #[test]
    fn data_as_json_keeps_order_and_types() {
        let format = Format::parse("s8 z; u16 a[2]; char c[2]").expect("a format");
        let event = event(&[0xff, 0, 1, 0, 2, 0, b'h', 0]);
        let data = Data {
            format: &format,
            event: &event,
        };
        let text = serde_json::to_string(&data).expect("an object");
        assert_eq!(text, r#"{"z":-1,"a":[1,2],"c":"h"}"#);
    }
}
