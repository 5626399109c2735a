//! Kernel handlers as text: parses the values of `--handler`, and prints a subscription's chain.
//!
//! Both directions use one notation: `ecalls stat` prints a chain as `ecalls watch --handler` takes
//! it, as far as a handler can be named there.

use ecalls::handler::{Bound, Compare};
use ecalls::{Format, Handler};
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::handler as number;
use ecalls_abi::subscription::{ACTION_FIXED_VALUE, Action, ActionKind};

/// The notations that `--handler` accepts.
const EXPECTED: &str = "one of sample:10, limit:100/s, limit:100/s,20, threshold:field>=5, \
                        histogram:field, histogram:field>>10, count";

/// Comparisons; a longer one comes before its own prefix.
const COMPARISONS: &[(&str, Compare, u32)] = &[
    ("<=", Compare::LessEqual, number::COMPARE_LESS_EQUAL),
    (">=", Compare::GreaterEqual, number::COMPARE_GREATER_EQUAL),
    ("==", Compare::Equal, number::COMPARE_EQUAL),
    ("!=", Compare::NotEqual, number::COMPARE_NOT_EQUAL),
    ("<", Compare::Less, number::COMPARE_LESS),
    (">", Compare::Greater, number::COMPARE_GREATER),
];

/// Parses a handler. The error says what is expected.
pub(crate) fn parse(text: &str) -> Result<Handler, String> {
    let (name, argument) = text.split_once(':').unwrap_or((text, ""));
    let handler = match name {
        "sample" => parse_sample(argument),
        "limit" => parse_limit(argument),
        "threshold" => parse_threshold(argument),
        "histogram" => parse_histogram(argument),
        "count" if argument.is_empty() => Some(Handler::Count { end: false }),
        _ => None,
    };
    handler.ok_or_else(|| format!("expected {EXPECTED}"))
}

fn parse_sample(argument: &str) -> Option<Handler> {
    let one_in = argument.parse().ok().filter(|one_in| *one_in > 0)?;
    Some(Handler::Sample { one_in })
}

/// Parses `100/s` or `100/s,20`. The default burst is the events of a tenth of a second.
fn parse_limit(argument: &str) -> Option<Handler> {
    let (rate, burst) = match argument.split_once(',') {
        Some((rate, burst)) => (rate, Some(burst.parse().ok()?)),
        None => (argument, None),
    };
    let per_second: u64 = rate.strip_suffix("/s")?.parse().ok()?;
    let burst = burst.unwrap_or((per_second / 10).max(1));
    (per_second > 0 && burst > 0).then_some(Handler::Limit { per_second, burst })
}

fn parse_threshold(argument: &str) -> Option<Handler> {
    let at = argument.find(['<', '>', '=', '!'])?;
    let (field, rest) = argument.split_at(at);
    let (sign, compare, _) = COMPARISONS
        .iter()
        .find(|(sign, _, _)| rest.starts_with(sign))?;
    let value = rest[sign.len()..].trim();
    let value = match value.strip_prefix('-') {
        Some(_) => value.parse::<i64>().ok()? as u64,
        None => value.parse::<u64>().ok()?,
    };
    Some(Handler::Threshold {
        field: name(field)?,
        compare: *compare,
        bound: Bound::Value(value),
    })
}

fn parse_histogram(argument: &str) -> Option<Handler> {
    let (field, shift) = match argument.split_once(">>") {
        Some((field, shift)) => (field, shift.trim().parse().ok().filter(|n| *n < 64)?),
        None => (argument, 0),
    };
    Some(Handler::Histogram {
        field: name(field)?,
        shift,
    })
}

fn name(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A subscription's chain: `sample(10) -> memory(ch 3)`. The format names the fields.
pub(crate) fn show_chain(chain: &[Action], format: &Format) -> String {
    let actions: Vec<String> = chain
        .iter()
        .map(|action| show_action(action, format))
        .collect();
    actions.join(" -> ")
}

fn show_action(action: &Action, format: &Format) -> String {
    match action.kind() {
        Some(ActionKind::Handler) => show_handler(action, format),
        Some(ActionKind::Thread) => format!("thread({})", show_handler(action, format)),
        Some(ActionKind::Signal) if action.flags & ACTION_FIXED_VALUE != 0 => {
            format!("signal({}, value {})", action.signal, action.argument[0])
        }
        Some(ActionKind::Signal) => format!("signal({})", action.signal),
        Some(kind @ (ActionKind::User | ActionKind::Memory)) => {
            format!("{}(ch {})", kind.name(), channel_index(action.channel))
        }
        None => format!("unknown action {}", action.kind),
    }
}

/// The index of a channel, by which `ecalls stat` names it.
pub(crate) fn channel_index(raw: u32) -> u32 {
    ecalls_abi::channel::Id::from_raw(raw).map_or(0, ecalls_abi::channel::Id::index)
}

fn show_handler(action: &Action, format: &Format) -> String {
    let [a, b, c] = action.argument;
    match action.handler {
        number::HANDLER_SAMPLE => format!("sample({a})"),
        number::HANDLER_LIMIT => format!("limit({a}/s, {b})"),
        number::HANDLER_THRESHOLD => format!("threshold({})", show_threshold(a, b, format)),
        number::HANDLER_HISTOGRAM => match op(a) {
            0 => format!("histogram({})", show_field(a, format)),
            shift => format!("histogram({}>>{shift})", show_field(a, format)),
        },
        number::HANDLER_COUNT if a == 1 => "count(end)".to_owned(),
        number::HANDLER_COUNT => "count".to_owned(),
        number::HANDLER_COPY_USER => format!("copy_user({a:#x}, {b}, {c})"),
        number::HANDLER_REMOTE => format!("remote(lane {a})"),
        HANDLER_ECODE => "ecode".to_owned(),
        other => format!("handler {other}"),
    }
}

fn op(word: u64) -> u32 {
    ((word >> number::FIELD_OP_SHIFT) & 0xff) as u32
}

fn show_threshold(word: u64, value: u64, format: &Format) -> String {
    let op = op(word);
    let sign = COMPARISONS
        .iter()
        .find(|(_, _, number)| *number == op & !number::COMPARE_SIGNED)
        .map_or("?", |(sign, _, _)| *sign);
    let field = show_field(word, format);
    match word >> number::FIELD_ATTRIBUTE_SHIFT {
        0 if op & number::COMPARE_SIGNED != 0 => {
            format!("{field}{sign}{}", value as i64)
        }
        0 => format!("{field}{sign}{value}"),
        attribute => format!("{field}{sign}attribute {}", attribute - 1),
    }
}

/// The field at the word's offset; a service that was replaced may have none at that offset.
fn show_field(word: u64, format: &Format) -> String {
    let offset = usize::from(word as u16);
    format
        .fields
        .iter()
        .find(|field| field.offset == offset)
        .map_or_else(|| format!("data[{offset}]"), |field| field.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::subscription::{
        ACTION_HANDLER, ACTION_MEMORY, ACTION_SIGNAL, ACTION_THREAD, ACTION_USER,
    };

    #[test]
    fn handlers_are_read() {
        let threshold = |field: &str, compare, value: u64| Handler::Threshold {
            field: field.to_owned(),
            compare,
            bound: Bound::Value(value),
        };
        let histogram = |shift| Handler::Histogram {
            field: "bytes".to_owned(),
            shift,
        };
        let limit = |per_second, burst| Handler::Limit { per_second, burst };
        for (text, handler) in [
            ("sample:10", Handler::Sample { one_in: 10 }),
            ("limit:100/s", limit(100, 10)),
            ("limit:5/s", limit(5, 1)),
            ("limit:100/s,20", limit(100, 20)),
            ("threshold:x>=5", threshold("x", Compare::GreaterEqual, 5)),
            ("threshold:x > 5", threshold("x", Compare::Greater, 5)),
            ("threshold:x<=0", threshold("x", Compare::LessEqual, 0)),
            ("threshold:x<-1", threshold("x", Compare::Less, u64::MAX)),
            ("threshold:x==7", threshold("x", Compare::Equal, 7)),
            ("threshold:x!=7", threshold("x", Compare::NotEqual, 7)),
            ("histogram:bytes", histogram(0)),
            ("histogram:bytes>>10", histogram(10)),
            ("count", Handler::Count { end: false }),
        ] {
            assert_eq!(parse(text), Ok(handler), "{text}");
        }
    }

    #[test]
    fn what_is_no_handler_is_refused_with_what_would_be_right() {
        for text in [
            "",
            "sample",
            "sample:",
            "sample:0",
            "sample:x",
            "limit:100",
            "limit:0/s",
            "limit:10/s,0",
            "limit:10/s,",
            "threshold:",
            "threshold:x",
            "threshold:x=5",
            "threshold:>=5",
            "threshold:x>=y",
            "histogram:",
            "histogram:x>>64",
            "count:1",
            "nice",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("sample:10"), "{error}");
        }
    }

    #[test]
    fn chain_is_shown_in_order_with_names_of_fields() {
        let format = Format::parse("u32 a; s64 bytes").expect("a format");
        let action = |kind| Action {
            kind,
            ..Action::default()
        };
        let handler = |kind, handler, argument| Action {
            handler,
            argument,
            ..action(kind)
        };
        let signed = number::COMPARE_GREATER_EQUAL | number::COMPARE_SIGNED;
        let word = number::field(8, 8, signed as u8, 0);
        let bound = number::field(0, 4, number::COMPARE_LESS as u8, 3);
        let chain = [
            handler(ACTION_HANDLER, number::HANDLER_SAMPLE, [10, 0, 0]),
            handler(
                ACTION_HANDLER,
                number::HANDLER_THRESHOLD,
                [word, u64::MAX, 0],
            ),
            handler(ACTION_HANDLER, number::HANDLER_THRESHOLD, [bound, 0, 0]),
            handler(ACTION_THREAD, number::HANDLER_COUNT, [1, 0, 0]),
            Action {
                signal: 40,
                ..action(ACTION_SIGNAL)
            },
            Action {
                channel: 3 | 7 << 12,
                ..action(ACTION_USER)
            },
            Action {
                channel: 4 | 1 << 12,
                ..action(ACTION_MEMORY)
            },
        ];
        assert_eq!(
            show_chain(&chain, &format),
            "sample(10) -> threshold(bytes>=-1) -> threshold(a<attribute 2) -> \
             thread(count(end)) -> signal(40) -> user(ch 3) -> memory(ch 4)"
        );
    }
}
