//! Durations and times as people write and read them: `250us`, `5ms`, `10s`, `1m30s`.
//!
//! A number needs a unit: a bare `5` is ambiguous. Several parts add up.

use std::time::Duration;

/// Units, the longer name first where one is the start of another, with their nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration. The error names the mistake and what is expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is a number and a unit: 250us, 5ms, 10s, 1m, 2h, 1m30s".to_owned();
    let mut total_ns = 0u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, after) = rest.split_at(digits.ok_or_else(wrong)?);
        let end = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let (_, unit_ns) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        let part_ns = part(number, *unit_ns).ok_or_else(wrong)?;
        total_ns = total_ns.checked_add(part_ns).ok_or("that is too long")?;
        rest = next;
    }
    Ok(Duration::from_nanos(total_ns))
}

/// Parses a duration greater than zero.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// `number` units in ns; a fraction has at most nine digits, and all of them count.
fn part(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let mut ns = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    if !fraction.is_empty() {
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let fraction_ns = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit_ns) / scale;
        ns = ns.checked_add(u64::try_from(fraction_ns).ok()?)?;
    }
    Some(ns)
}

/// A span of time in three or four digits: `850ns`, `12.3us`, `1.23ms`, `2.50s`, `90m`.
pub fn show_ns(ns: u64) -> String {
    let (unit, unit_ns) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        1_000_000_000..600_000_000_000 => ("s", 1_000_000_000),
        _ => return format!("{}m", ns / 60_000_000_000),
    };
    let whole = ns / unit_ns;
    let thousandths = ns % unit_ns * 1000 / unit_ns;
    match whole {
        0..10 => format!("{whole}.{:02}{unit}", thousandths / 10),
        10..100 => format!("{whole}.{}{unit}", thousandths / 100),
        _ => format!("{whole}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_parts_add_up() {
        for (text, ns) in [
            ("7ns", 7),
            ("250us", 250_000),
            ("5ms", 5_000_000),
            ("10s", 10_000_000_000),
            ("1m", 60_000_000_000),
            ("2h", 7_200_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5ms", 1_500_000),
            ("0.000001s", 1_000),
            (" 5ms ", 5_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            " ",
            "5",
            "ms",
            "5 ms",
            "-5ms",
            "5msec",
            "1.ms.",
            ".5s",
            "1..5s",
            "5ms3",
            "99999999999h",
            "1h99999999999999999999s",
            "5m s",
            "1.0000000001s",
            "ä",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse_positive("0ms").is_err());
    }

    #[test]
    fn times_are_shown_in_a_unit_that_fits() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00us"),
            (12_345, "12.3us"),
            (999_999, "999us"),
            (1_234_567, "1.23ms"),
            (2_500_000_000, "2.50s"),
            (599_000_000_000, "599s"),
            (5_400_000_000_000, "90m"),
        ] {
            assert_eq!(show_ns(ns), text);
        }
    }
}
