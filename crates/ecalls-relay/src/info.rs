//! What a channel is, as hosts tell each other: a JSON object with its format, the names of its
//! kinds, its policy and the host that created it. Every host that has the channel open answers
//! with it, so that the channel can be opened as long as one of them lives.
//!
//! It comes from strangers: at most [`TEXT_MAX`] bytes, no key that is unknown, no text that is too
//! long for a service or has characters that a terminal obeys. Whether the format is one, the
//! program decides that registers it.

use ecalls_abi::relay::{RELAY_FAST, RELAY_RELIABLE, RelayChannel};
use ecalls_abi::text;
use ecalls_abi::version::FORMAT_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of the longest answer that is read.
pub const TEXT_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Frames go over the lane: soon or never.
    Fast,
    /// They go by the relays: later, but they are repeated until they have arrived.
    Reliable,
}

/// The version of all that relays say to each other.
pub const VERSION: u32 = 1;

/// Why an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// It is of a relay of this version, 0 if it says none.
    Version(u32),
    Impossible,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    /// [`VERSION`].
    pub version: u32,
    pub format: String,
    pub kinds: String,
    pub policy: Policy,
    /// The host that created it.
    pub creator: u64,
}

impl Info {
    /// What a host has answered.
    ///
    /// # Errors
    /// [`Useless`]: nothing that can be used.
    pub fn parse(bytes: &[u8]) -> Result<Info, Useless> {
        if bytes.len() > TEXT_MAX {
            return Err(Useless::Impossible);
        }
        let impossible = |_| Useless::Impossible;
        let told: Map<String, Value> = serde_json::from_slice(bytes).map_err(impossible)?;
        let version = told.get("version").map_or(Some(0), Value::as_u64);
        match version.and_then(|version| u32::try_from(version).ok()) {
            Some(VERSION) => {}
            Some(other) => return Err(Useless::Version(other)),
            None => return Err(Useless::Impossible),
        }
        let info: Info = serde_json::from_value(told.into()).map_err(impossible)?;
        info.is_possible()
            .then_some(info)
            .ok_or(Useless::Impossible)
    }

    /// What is sent.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the program has that entered as `host`; `None`: it is impossible.
    pub fn of(channel: &RelayChannel, host: u64) -> Option<Info> {
        let info = Info {
            version: VERSION,
            format: text::read(&channel.format).to_owned(),
            kinds: text::read(&channel.kinds).to_owned(),
            policy: match channel.policy {
                RELAY_FAST => Policy::Fast,
                RELAY_RELIABLE => Policy::Reliable,
                _ => return None,
            },
            creator: match channel.creator {
                0 => host,
                creator => creator,
            },
        };
        info.is_possible().then_some(info)
    }

    /// Writes it into a message to a program.
    pub fn write(&self, channel: &mut RelayChannel) {
        // is_possible() says that they fit.
        let _ = text::write(&mut channel.format, &self.format);
        let _ = text::write(&mut channel.kinds, &self.kinds);
        channel.creator = self.creator;
        channel.policy = match self.policy {
            Policy::Fast => RELAY_FAST,
            Policy::Reliable => RELAY_RELIABLE,
        };
    }

    /// Whether two hosts can exchange events.
    pub fn agrees(&self, other: &Info) -> bool {
        (&self.format, &self.kinds, self.policy) == (&other.format, &other.kinds, other.policy)
    }

    fn is_possible(&self) -> bool {
        let fits = |text: &str| text.len() < FORMAT_MAX && !text.contains(char::is_control);
        fits(&self.format) && fits(&self.kinds) && self.creator != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written_and_no_other_one() {
        let info = Info {
            version: VERSION,
            format: "u32 cpu".to_owned(),
            kinds: "event".to_owned(),
            policy: Policy::Fast,
            creator: 1,
        };
        assert_eq!(Info::parse(info.to_text().as_bytes()), Ok(info.clone()));
        let long = Info {
            format: "x".repeat(FORMAT_MAX),
            ..info.clone()
        };
        let escape = Info {
            kinds: "a\u{1b}[2J".to_owned(),
            ..info.clone()
        };
        let nobody = Info {
            creator: 0,
            ..info.clone()
        };
        for bad in [&long, &escape, &nobody] {
            let parsed = Info::parse(bad.to_text().as_bytes());
            assert_eq!(parsed, Err(Useless::Impossible));
        }
        let more = info.to_text().replace('{', "{\"more\":1,");
        for text in [
            "",
            "{\"version\":1}",
            "[]",
            "{\"version\":-1}",
            "{\"version\":\"2\"}",
            "\u{ff}",
            &more,
            &"[".repeat(TEXT_MAX),
            &" ".repeat(TEXT_MAX + 1),
        ] {
            let parsed = Info::parse(text.as_bytes());
            assert_eq!(parsed, Err(Useless::Impossible), "{text}");
        }
        for (text, version) in [("{}", 0), ("{\"version\":7,\"more\":[]}", 7)] {
            let parsed = Info::parse(text.as_bytes());
            assert_eq!(parsed, Err(Useless::Version(version)), "{text}");
        }
    }
}
