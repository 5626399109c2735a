//! How many messages of other hosts the entries of [`crate::access`] have refused: Zenoh counts
//! them where it refuses them, and says so in its own key space as text in the format of
//! OpenMetrics. The counts are of whole messages, by kind, since the session began.

use ecalls_abi::relay::{
    RELAY_NO_ANSWER, RELAY_NO_FRAME, RELAY_NO_PRESENCE, RELAY_NO_QUESTION, RELAY_REASONS,
};

/// By reason; 0 for those that are not this file's.
pub type Refusals = [u64; RELAY_REASONS];

/// The beginning of the lines that count messages which have arrived and were dropped.
const COUNT: &str = "zenoh_rx_network_message_dropped_payload_bytes_count{";

/// Where the session with this identity tells its counts: the sums, with those of connections that
/// have ended.
pub fn key(session: &str) -> String {
    format!(
        "@/{session}/*/metrics?per_transport=false;per_link=false;per_key=false;\
         disconnected=true;descriptors=false;compression=false"
    )
}

/// The counts in that text.
pub fn read(text: &str) -> Refusals {
    let mut refused = [0; RELAY_REASONS];
    for line in text.lines() {
        let Some((labels, count)) = line
            .strip_prefix(COUNT)
            .and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        if label(labels, "reason") != Some("access-control") {
            continue;
        }
        let reason = match label(labels, "message") {
            Some("put" | "delete") => RELAY_NO_FRAME,
            Some("reply" | "reply-err") => RELAY_NO_ANSWER,
            Some("query" | "interest") => RELAY_NO_QUESTION,
            Some("declare") => RELAY_NO_PRESENCE,
            _ => continue,
        };
        refused[reason as usize] += count.parse().unwrap_or(0);
    }
    refused
}

/// The value of a label, which has no quotation mark in it.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut all = labels.split(',').filter_map(|one| one.split_once('='));
    let (_, value) = all.find(|(key, _)| *key == name)?;
    value.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_access_refused_on_arrival_is_counted() {
        let line = |flow: &str, reason: &str, message: &str, count: u64| {
            format!(
                "zenoh_{flow}_network_message_dropped_payload_bytes_count{{local_id=\"ab\",\
                 priority=\"data\",message=\"{message}\",reason=\"{reason}\"}} {count}\n"
            )
        };
        let text = [
            "zenoh_rx_bytes_total{local_id=\"ab\"} 7\n".to_owned(),
            line("rx", "access-control", "put", 2),
            line("rx", "access-control", "delete", 1),
            line("rx", "access-control", "reply", 4),
            line("rx", "access-control", "declare", 5),
            line("rx", "access-control", "interest", 6),
            line("rx", "low-pass", "put", 8),
            line("tx", "access-control", "put", 9),
            "# EOF\n".to_owned(),
        ];
        assert_eq!(read(&text.concat()), [3, 4, 6, 5, 0, 0, 0, 0]);
        assert_eq!(
            read("zenoh_rx_network_message_dropped_payload_bytes_count{"),
            [0; RELAY_REASONS]
        );
    }
}
