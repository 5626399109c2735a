//! What a request does, and its reply: get, set and delete of memcached's text protocol, in one
//! datagram with a frame's header (protocol.txt of memcached, "UDP protocol").

use std::collections::HashMap;

/// Bytes of a frame's header: id, number and count of its datagrams, and 0; 16 bits each.
pub const HEADER: usize = 8;
/// Keys that there may be.
const KEYS: usize = 65_536;
/// Bytes of a key.
const KEY: usize = 250;
/// Bytes of a value: it comes in one datagram.
const VALUE: usize = 1400;

/// The values.
#[derive(Debug, Default)]
pub struct Store {
    values: HashMap<Vec<u8>, Value>,
}

#[derive(Debug)]
struct Value {
    flags: u32,
    data: Vec<u8>,
}

/// What a request leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Empty: it wants none.
    pub text: Vec<u8>,
    /// The one key whose value it has, which will be asked for again.
    pub hot: Option<Vec<u8>>,
    /// The key whose value is another one now.
    pub changed: Option<Vec<u8>>,
}

/// The number and the text of a frame; `None`: it is too short for one.
pub fn frame(datagram: &[u8]) -> Option<([u8; 2], &[u8])> {
    let (header, text) = datagram.split_at_checked(HEADER)?;
    Some(([header[0], header[1]], text))
}

/// The header of one datagram of a reply.
pub fn header(id: [u8; 2], number: u16, total: u16) -> [u8; HEADER] {
    let ([a, b], [c, d]) = (number.to_be_bytes(), total.to_be_bytes());
    [id[0], id[1], a, b, c, d, 0, 0]
}

fn told(text: &str) -> Reply {
    Reply {
        text: format!("{text}\r\n").into_bytes(),
        ..Reply::default()
    }
}

impl Store {
    /// Does what the text of a datagram says.
    pub fn reply(&mut self, datagram: &[u8], text: &[u8]) -> Reply {
        if datagram[2..6] != [0, 0, 0, 1] {
            return told("SERVER_ERROR multi-packet request not supported");
        }
        let Some(end) = text.windows(2).position(|two| two == b"\r\n") else {
            return Reply::default();
        };
        let (line, rest) = (&text[..end], &text[end + 2..]);
        let words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let words: Vec<&[u8]> = words.collect();
        if words.iter().skip(1).take(1).any(|key| key.len() > KEY) {
            return told("CLIENT_ERROR bad command line format");
        }
        match *words.as_slice() {
            [b"get", ref keys @ ..] if !keys.is_empty() => self.get(keys),
            [b"set", key, flags, expiry, bytes, ref more @ ..] if more.len() <= 1 => {
                let numbers = [flags, expiry, bytes].map(number);
                let reply = match numbers {
                    [Some(flags), Some(0), Some(bytes)] => {
                        self.set(key, flags, bytes as usize, rest)
                    }
                    _ => told("CLIENT_ERROR bad command line format"),
                };
                quiet(reply, more == [&b"noreply"[..]])
            }
            [b"delete", key, ref more @ ..] if more.len() <= 1 => {
                let was_there = self.values.remove(key).is_some();
                let reply = told(if was_there { "DELETED" } else { "NOT_FOUND" });
                let reply = Reply {
                    changed: was_there.then(|| key.to_vec()),
                    ..reply
                };
                quiet(reply, more == [&b"noreply"[..]])
            }
            _ => told("ERROR"),
        }
    }

    fn get(&self, keys: &[&[u8]]) -> Reply {
        let mut text = Vec::new();
        for key in keys {
            if let Some(value) = self.values.get(*key) {
                text.extend_from_slice(b"VALUE ");
                text.extend_from_slice(key);
                let head = format!(" {} {}\r\n", value.flags, value.data.len());
                text.extend_from_slice(head.as_bytes());
                text.extend_from_slice(&value.data);
                text.extend_from_slice(b"\r\n");
            }
        }
        let is_hot = keys.len() == 1 && !text.is_empty();
        Reply {
            hot: keys.first().filter(|_| is_hot).map(|key| key.to_vec()),
            text: [&text[..], b"END\r\n"].concat(),
            changed: None,
        }
    }

    fn set(&mut self, key: &[u8], flags: u32, bytes: usize, rest: &[u8]) -> Reply {
        let is_new = !self.values.contains_key(key);
        if bytes > VALUE || is_new && self.values.len() >= KEYS {
            return told("SERVER_ERROR out of memory storing object");
        }
        let Some(data) = rest
            .strip_suffix(b"\r\n")
            .filter(|data| data.len() == bytes)
        else {
            return told("CLIENT_ERROR bad data chunk");
        };
        let data = data.to_vec();
        self.values.insert(key.to_vec(), Value { flags, data });
        Reply {
            changed: Some(key.to_vec()),
            ..told("STORED")
        }
    }
}

fn number(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn quiet(reply: Reply, is_quiet: bool) -> Reply {
    match is_quiet {
        true => Reply {
            text: Vec::new(),
            ..reply
        },
        false => reply,
    }
}
