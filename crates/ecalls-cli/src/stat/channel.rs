//! Channels for `ecalls stat`.

use ecalls_abi::channel::{Channel, Layout, SlotUse};
use serde::Serialize;

use super::{section, state_name};
use crate::exit::Outcome;
use crate::handler::channel_index;
use crate::output::{Output, Table};
use crate::process;

#[derive(Debug, Serialize)]
struct ChannelRow {
    what: &'static str,
    channel: u32,
    state: &'static str,
    owner: u32,
    layout: &'static str,
    capacity: u32,
    slot_use: Option<&'static str>,
    defer: u32,
}

impl ChannelRow {
    fn new(row: &Channel) -> ChannelRow {
        let slots = row.layout == Layout::Slots.raw();
        ChannelRow {
            what: "channel",
            channel: channel_index(row.id),
            state: state_name(row.state),
            owner: row.owner,
            layout: if slots { "slots" } else { "ring" },
            capacity: row.capacity,
            slot_use: slots.then(|| match SlotUse::from_raw(row.slot_use) {
                Some(SlotUse::Free) => "free",
                Some(SlotUse::Priority) => "priority",
                Some(SlotUse::Type) => "type",
                Some(SlotUse::Ready) => "ready",
                None => "unknown",
            }),
            defer: row.defer,
        }
    }
}

/// Prints channels.
pub(super) fn print(out: &mut Output, channels: &[Channel]) -> Outcome {
    let rows: Vec<_> = channels.iter().map(ChannelRow::new).collect();
    if out.is_json() {
        return rows.iter().try_for_each(|row| out.object(row));
    }
    let mut table = Table::new(&[">CHANNEL", "OWNER", "STATE", "LAYOUT", ">CAPACITY", "DEFER"]);
    for row in &rows {
        table.row([
            row.channel.to_string(),
            process::show(row.owner),
            row.state.to_owned(),
            format!("{} {}", row.layout, row.slot_use.unwrap_or_default())
                .trim_end()
                .to_owned(),
            row.capacity.to_string(),
            show_defer(row.defer),
        ]);
    }
    section(out, &table, rows.len())
}

fn show_defer(defer: u32) -> String {
    use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH};
    let mut ways = vec!["call"];
    ways.extend((defer & DEFER_DELAY != 0).then_some("delay"));
    ways.extend((defer & DEFER_SWITCH != 0).then_some("switch"));
    ways.join(" ")
}
