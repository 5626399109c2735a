//! The built-in kernel handlers (ECalls-05 §3.1.2): code that runs in the kernel for each event of
//! a subscription and continues or ends its chain.

use ecalls_abi::handler::{
    COMPARE_EQUAL, COMPARE_GREATER, COMPARE_GREATER_EQUAL, COMPARE_LESS, COMPARE_LESS_EQUAL,
    COMPARE_NOT_EQUAL, COMPARE_SIGNED, HANDLER_COPY_USER, HANDLER_COUNT, HANDLER_HISTOGRAM,
    HANDLER_LIMIT, HANDLER_SAMPLE, HANDLER_THRESHOLD, field,
};

use crate::format::{Format, Kind};
use crate::{Error, Result};

/// How a threshold compares a field with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterEqual,
    /// `>`
    Greater,
}

/// The value with which a threshold compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A constant; a signed one as its 64 bits, a decimal number in millionths.
    Value(u64),
    /// An attribute of the channel, 0 to 31, which the program sets by a downcall at any time.
    Attribute(u32),
}

/// A kernel handler with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// `sample`: one in `one_in` events passes, the first one included.
    Sample {
        /// 0 and 1: all.
        one_in: u64,
    },
    /// `limit`: at most this number of events per second pass.
    Limit {
        /// Events per second; 0: none passes.
        per_second: u64,
        /// Largest burst.
        burst: u64,
    },
    /// `threshold`: an event passes if the comparison of a field of its data with a bound is true.
    Threshold {
        /// Name of the field.
        field: String,
        /// The comparison.
        compare: Compare,
        /// The bound.
        bound: Bound,
    },
    /// `histogram`: counts a field's value in [`crate::Channel::histogram`]; every event passes.
    Histogram {
        /// Name of the field.
        field: String,
        /// Number of bits by which the value is first shifted right.
        shift: u8,
    },
    /// `count`: counts events.
    Count {
        /// Whether the chain ends here.
        end: bool,
    },
    /// `copy_user`: copies memory of the receiver into the event's data. May sleep: only in a
    /// kernel thread.
    CopyUser {
        /// Address in the receiver's memory.
        address: u64,
        /// Offset into the data, a multiple of 8.
        offset: u64,
        /// Bytes, at most 64.
        size: u64,
    },
}

impl Handler {
    /// The registered names (ECalls-05 §3, k_handler).
    pub const NAMES: &[&str] = &[
        "sample",
        "limit",
        "threshold",
        "histogram",
        "count",
        "copy_user",
    ];

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Handler::Sample { .. } => "sample",
            Handler::Limit { .. } => "limit",
            Handler::Threshold { .. } => "threshold",
            Handler::Histogram { .. } => "histogram",
            Handler::Count { .. } => "count",
            Handler::CopyUser { .. } => "copy_user",
        }
    }

    /// Whether it can only run in a kernel thread.
    pub fn may_sleep(&self) -> bool {
        matches!(self, Handler::CopyUser { .. })
    }

    /// Its number and arguments, for data of this format.
    pub(crate) fn encode(&self, format: &Format) -> Result<(u32, [u64; 3])> {
        Ok(match self {
            Handler::Sample { one_in } => (HANDLER_SAMPLE, [*one_in, 0, 0]),
            Handler::Limit { per_second, burst } => (HANDLER_LIMIT, [*per_second, *burst, 0]),
            Handler::Threshold {
                field,
                compare,
                bound,
            } => {
                let (attribute, value) = match bound {
                    Bound::Value(value) => (0, *value),
                    Bound::Attribute(number) => (number + 1, 0),
                };
                let word = encode_field(format, field, Some(*compare), 0, attribute)?;
                (HANDLER_THRESHOLD, [word, value, 0])
            }
            Handler::Histogram { field, shift } => (
                HANDLER_HISTOGRAM,
                [encode_field(format, field, None, *shift, 0)?, 0, 0],
            ),
            Handler::Count { end } => (HANDLER_COUNT, [u64::from(*end), 0, 0]),
            Handler::CopyUser {
                address,
                offset,
                size,
            } => (HANDLER_COPY_USER, [*address, *offset, *size]),
        })
    }
}

fn encode_field(
    format: &Format,
    name: &str,
    compare: Option<Compare>,
    shift: u8,
    attribute: u32,
) -> Result<u64> {
    let known = format
        .field(name)
        .filter(|field| field.kind != Kind::Text && field.count == 1);
    let known = known.ok_or_else(|| Error::Unknown {
        what: "number field",
        name: name.to_owned(),
        hint: format!(
            "there are {}",
            format
                .fields
                .iter()
                .map(|f| f.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    })?;
    let mut op = match compare {
        None => u32::from(shift),
        Some(Compare::Less) => COMPARE_LESS,
        Some(Compare::LessEqual) => COMPARE_LESS_EQUAL,
        Some(Compare::Equal) => COMPARE_EQUAL,
        Some(Compare::NotEqual) => COMPARE_NOT_EQUAL,
        Some(Compare::GreaterEqual) => COMPARE_GREATER_EQUAL,
        Some(Compare::Greater) => COMPARE_GREATER,
    };
    if compare.is_some() && matches!(known.kind, Kind::Signed | Kind::Fixed) {
        op |= COMPARE_SIGNED;
    }
    let offset = u16::try_from(known.offset).unwrap_or(u16::MAX);
    let size = u8::try_from(known.size).unwrap_or(8);
    Ok(field(
        offset,
        size,
        u8::try_from(op).unwrap_or(0),
        attribute,
    ))
}
