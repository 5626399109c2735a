//! A cluster of many hosts: when all of them know who is there.
//!
//! The program zenoh-peer, which `make relay` builds, has the relays' parts in the network of all
//! hosts in one process: one relay listens, the others are its clients, all have one channel open
//! and follow its hosts. Beside them plain sessions of Zenoh with tokens, a get and a put do the
//! same. An event goes to every host and there to each of a table of 334 local members.

use super::peer;
use crate::bench::Bench;
use crate::bench::rows::Section;
use crate::bench::timing::Value;
use crate::exit::{Code, Failure};

pub(super) const SECTION: Section = Section {
    rows: &[
        "scale_open",
        "scale_join",
        "scale_leave",
        "scale_review",
        "scale_event",
        "scale_zenoh_open",
        "scale_zenoh_join",
        "scale_zenoh_leave",
        "scale_zenoh_review",
        "scale_zenoh_event",
    ],
    slow: true,
    measure,
};

/// Hosts, and members of each: 100,200 in all.
const RELAYS: usize = 300;
const LOCAL: &str = "334";
/// Of the hosts, those that the others connect to.
const HUBS: &str = "1";
/// What is measured: our row, Zenoh's, its name in what the program says, and what it is.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (
        "scale_open",
        "scale_zenoh_open",
        "open_ms",
        "300 hosts, one after the other, until each knows all",
    ),
    (
        "scale_join",
        "scale_zenoh_join",
        "join_ms",
        "one more, until all know it",
    ),
    (
        "scale_leave",
        "scale_zenoh_leave",
        "leave_ms",
        "it leaves, until all know that",
    ),
    (
        "scale_review",
        "scale_zenoh_review",
        "review_ms",
        "one host asks for all",
    ),
    (
        "scale_event",
        "scale_zenoh_event",
        "event_ms",
        "an event to all hosts (ours: and to 334 members of each)",
    ),
];

fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let relays = match bench.effort.divisor > 10 {
        true => RELAYS / 10,
        false => RELAYS,
    };
    let count = relays.to_string();
    let ours = peer::ask_zenoh(&["relays", &count, LOCAL, HUBS])?;
    let theirs = peer::ask_zenoh(&["sessions", &count])?;
    if let Some(said) = &ours
        && (said["seen"] != relays || said["lost"] != 0 || said["once"] != true)
    {
        let why = format!("of {relays} hosts some are missing, or an event: {said}");
        return Err(Failure::new(Code::Failed, why));
    }
    let mut values = Vec::new();
    for (row, zenoh, name, what) in ROWS {
        for (row, said) in [(row, &ours), (zenoh, &theirs)] {
            let ms = said.as_ref().and_then(|said| said[*name].as_f64());
            values.push(match ms {
                Some(ms) => Value::ns(row, ms * 1e6, "once", what),
                None => Value::missing(row, peer::NO_ZENOH),
            });
        }
    }
    Ok(values)
}
