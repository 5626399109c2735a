//! The features of this kernel, and our use of them: the facts behind `ecalls doctor`.
//!
//! [`features`] reads the facts of the host (`host`), looks up the kernel's functions, tracepoints
//! and types in its type information (`types`, which any user may read) and, if the caller has the
//! privileges, tries each by loading a tiny program or map that is removed at once (`trial`).
//! `part` lists the parts of the kernel that we use and judges them by these findings; `setting`
//! judges the configuration of the machine. [`choices`] then lists for each purpose which mechanism
//! is used here and why.
//!
//! Reading and judging are separate: everything that judges is a function of plain values, and is
//! tested without the kernel in question. A missing file makes a feature unknown, and is never an
//! error.
//!
//! The core itself does not use this module at its start: it loads and attaches what the kernel
//! accepts, best first. It does so only after a refusal by the kernel, to name the missing feature
//! ([`missing_requirement`]).

mod choice;
mod host;
mod options;
mod part;
mod setting;
mod trial;
mod types;

use std::fmt;
use std::sync::OnceLock;

pub use choice::{Choice, choices};

/// Whether the kernel has a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Present,
    /// It does not, or does not permit us to use it.
    Absent,
    /// It cannot be determined, for this reason.
    Unknown(&'static str),
}

impl fmt::Display for State {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Present => to.write_str("present"),
            State::Absent => to.write_str("absent"),
            State::Unknown(why) => write!(to, "unknown: {why}"),
        }
    }
}

/// A feature of the kernel or of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    pub name: &'static str,
    /// Our use of it.
    pub purpose: &'static str,
    /// Whether it is there.
    pub state: State,
    /// The kernel version, build option or setting that provides it.
    pub since: &'static str,
    /// The consequence without it, and its replacement.
    pub without: &'static str,
    /// How its state was determined.
    pub evidence: String,
    /// Whether the core cannot be loaded without it.
    pub required: bool,
}

/// All features that we use, most basic first. This takes about a tenth of a second: it reads the
/// kernel's type information, and with privileges loads about forty programs of a few instructions.
pub fn features() -> Vec<Feature> {
    let former = libbpf_rs::set_print(None);
    let host = host::Host::read();
    let types = types::Types::read(&part::names());
    let mut features = setting::basics(&host, &types);
    features.extend(part::features(&types, host.may_load()));
    features.extend(setting::surroundings(&host));
    libbpf_rs::set_print(former);
    features
}

/// Whether the kernel has the lock that the queues use from Linux 6.15 on.
pub(crate) fn has_resilient_lock() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| has_function("bpf_res_spin_lock_irqsave", (6, 15)))
}

/// Whether the kernel side can send signals with a value to any process: from Linux 6.13 on.
pub fn sends_signals() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| has_function("bpf_send_signal_task", (6, 13)))
}

/// Whether programs may call a function. A kernel older than `since` may have it, too: its type
/// information, which takes milliseconds to read, decides.
fn has_function(name: &'static str, since: (u32, u32)) -> bool {
    let function = types::Witness::Kfunc(name);
    host::running().is_some_and(|version| version >= since)
        || types::Types::read(&[function].into())
            .id(function)
            .is_some()
}

/// The first feature that the core needs and this kernel lacks: its name, and what provides it.
pub fn missing_requirement() -> Option<(&'static str, &'static str)> {
    first_missing(&features())
}

fn first_missing(features: &[Feature]) -> Option<(&'static str, &'static str)> {
    features
        .iter()
        .find(|feature| feature.required && feature.state == State::Absent)
        .map(|feature| (feature.name, feature.since))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn feature(name: &'static str, state: State, required: bool) -> Feature {
        let (purpose, since, without) = ("", "Linux 9.9", "");
        Feature {
            name,
            purpose,
            state,
            since,
            without,
            evidence: String::new(),
            required,
        }
    }

    #[test]
    fn only_a_required_feature_that_is_surely_absent_is_missing() {
        let mut features = vec![
            feature("optional", State::Absent, false),
            feature("unknown", State::Unknown("cannot tell"), true),
            feature("there", State::Present, true),
        ];
        assert_eq!(first_missing(&features), None);
        features.push(feature("needed", State::Absent, true));
        features.push(feature("needed too", State::Absent, true));
        assert_eq!(first_missing(&features), Some(("needed", "Linux 9.9")));
    }

    #[test]
    fn this_machine_can_be_probed_by_anybody_and_every_feature_is_explained() {
        let features = features();
        let names: HashSet<_> = features.iter().map(|each| each.name).collect();
        assert_eq!(names.len(), features.len(), "each name once");
        for each in &features {
            let texts = [
                each.purpose,
                each.since,
                each.without,
                each.evidence.as_str(),
            ];
            assert!(texts.iter().all(|text| !text.is_empty()), "{each:?}");
        }
        assert!(!choices(&features).is_empty());
    }
}
