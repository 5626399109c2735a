//! The names that a text in E-code may use where it is to run: the same for the program that hosts
//! the core, the client that shows its user the errors, and the daemon that compiles the client's
//! text again.
//!
//! A text may use the names to which it has a right: counters and attributes belong to the
//! subscription's channel, and events are raised of services of the subscription's own process. A
//! signal goes to the receiver only, and the owner's permission to signal it is checked when the
//! subscription is made and again at each signal.

use ::ecode::environment::{Denied, Environment};
use ::ecode::tree::Builtin;
use ecalls_abi::downcall::ATTRIBUTES;
use ecalls_abi::service::ServiceInfo;
use ecalls_abi::version::DATA_MAX;

use crate::error::{Error, Result};

/// The error for a counter without a channel.
pub const NO_CHANNEL: &str = "counters are a channel's: say memory(...) or report_to(...)";

/// The names for a text that handles events of a service, whose data have the format `input`.
/// `attributes`: those of its channel.
///
/// # Errors
/// [`Error::LimitReached`] for more attributes than a channel has.
pub fn environment(
    info: &ServiceInfo,
    input: &str,
    has_channel: bool,
    attributes: &[String],
) -> Result<Environment> {
    let kinds = info.kinds().map(str::to_owned).collect();
    of_parts(input, kinds, has_channel, attributes)
}

/// The same with the service's `kinds` instead of the service.
///
/// # Errors
/// As [`environment`].
pub fn of_parts(
    input: &str,
    kinds: Vec<String>,
    has_channel: bool,
    attributes: &[String],
) -> Result<Environment> {
    if attributes.len() > ATTRIBUTES {
        return Err(Error::LimitReached {
            which: "attributes of one channel",
            limit: ATTRIBUTES,
        });
    }
    let mut environment = Environment {
        input: (!input.trim().is_empty()).then(|| input.to_owned()),
        kinds,
        output_most: Some(DATA_MAX as u32),
        ..Environment::default()
    };
    if has_channel {
        environment.attributes = attributes.to_vec();
    } else {
        let counters = [Builtin::Count, Builtin::Histogram];
        environment.denied.extend(counters.map(|builtin| Denied {
            builtin,
            reason: NO_CHANNEL,
        }));
    }
    Ok(environment)
}

/// The names for a text whose result is all that it says, about data of the format `input`;
/// `reason` tells why it may not request anything.
pub fn of_result(input: &str, reason: &'static str) -> Environment {
    let requests = [
        Builtin::Signal,
        Builtin::Raise(0),
        Builtin::Defer,
        Builtin::Drop,
        Builtin::Count,
        Builtin::Histogram,
        Builtin::Attribute(0),
    ];
    let denied = requests.map(|builtin| Denied { builtin, reason });
    Environment {
        input: Some(input.to_owned()),
        denied: denied.to_vec(),
        output_most: Some(0),
        ..Environment::default()
    }
}

/// Whether a text may raise an event, so that the search for services is worth its time: the word
/// precedes a bracket, or a comment which a bracket may follow. A text that has the word only in a
/// comment costs that time needlessly.
pub fn may_raise(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("raise").any(|(at, word)| {
        let (before, behind) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_name) && behind.trim_start().starts_with(['(', '/'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_raises_is_seen_and_one_that_speaks_of_it_is_not() {
        for text in [
            "raise(\"s\", 1);",
            "1 + raise\n\t(\"s\")",
            "// who raises\nraise /* it */ (\"s\");",
            "raises(); raise(\"s\");",
        ] {
            assert!(may_raise(text), "{text}");
        }
        for text in [
            "",
            "// who raises how much\n1",
            "praise(1)",
            "raised",
            "raise_it(2)",
        ] {
            assert!(!may_raise(text), "{text}");
        }
    }
}
