//! A name service that speaks DNS over UDP, whose repeated answers the kernel gives.
//!
//! Shows: [`ecalls::Answers`] with a protocol that others made. A question that the process has
//! answered is put into a cell: the next client that asks the same is answered by the kernel.
//! Needs: root. A file of addresses and names in the form of /etc/hosts.
//! Run: `names lo 127.0.0.1:5353 /etc/hosts`, and in another shell, several times,
//! `dig +nocookie @127.0.0.1 -p 5353 localhost`
//! Expect: the address each time; and one line of this program, for the first question only. With
//! dig's cookie, which is another one each time, all questions go up.
//!
//! Of DNS (RFC 1035) it has one question of class IN in a datagram, and addresses. Names are those
//! of the file, and do not change; a service whose names do has to remove what it has put.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ecalls::{AnswerPlan, Answers};

/// As in the text.
const CELLS: u32 = 1024;
/// The first bytes of a message: the number by which a client knows the answer.
const ECHO: usize = 2;
/// Behind the header of 12 bytes: what is asked. What is no question goes up.
const CODE: &str = "
    if (length < 17 || length > 144 || (data[2] & 0x80) != 0)
        return UP;
    u64 question = 0;
    for (u32 i = 2; i < 144 && i < length; i++)
        question = hash(question + data[i]);
    return question % 1024;
";

const HEADER: usize = 12;
const IN: u16 = 1;
const A: u16 = 1;
const AAAA: u16 = 28;
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;
const TTL_S: u32 = 60;

type Names = HashMap<String, Vec<IpAddr>>;

/// Lines of an address and its names.
fn read(text: &str) -> Names {
    let mut names = Names::new();
    for line in text.lines() {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse) else {
            continue;
        };
        for name in words {
            let name = name.to_ascii_lowercase();
            names.entry(name).or_default().push(address);
        }
    }
    names
}

/// What a message asks.
struct Question<'a> {
    /// Without the last dot, in lower case.
    name: String,
    kind: u16,
    /// Its bytes, which the answer repeats.
    bytes: &'a [u8],
}

fn question(message: &[u8]) -> Option<Question<'_>> {
    let (header, rest) = message.split_at_checked(HEADER)?;
    // A question (QR, OPCODE), one of them, and no answers.
    if header[2] & 0xf8 != 0 || header[4..10] != [0, 1, 0, 0, 0, 0] {
        return None;
    }
    let mut labels = Vec::new();
    let mut at = 0;
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        match length {
            0 => break,
            // What is longer is a reference, which a first question has none of.
            1..64 => labels.push(String::from_utf8_lossy(rest.get(at..at + length)?)),
            _ => return None,
        }
        at += length;
    }
    let word = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let (kind, class) = (word(at)?, word(at + 2)?);
    (class == IN).then(|| Question {
        name: labels.join(".").to_ascii_lowercase(),
        kind,
        bytes: &rest[..at + 4],
    })
}

fn answer(message: &[u8], question: &Question<'_>, names: &Names) -> (Vec<u8>, u8) {
    let known = names.get(&question.name);
    let code = match known {
        Some(_) => NO_ERROR,
        None => NO_SUCH_NAME,
    };
    let addresses = known.into_iter().flatten();
    let records = addresses.filter_map(|address| match (address, question.kind) {
        (IpAddr::V4(ip), A) => Some(ip.octets().to_vec()),
        (IpAddr::V6(ip), AAAA) => Some(ip.octets().to_vec()),
        _ => None,
    });
    let records: Vec<Vec<u8>> = records.take(8).collect();
    // An answer, by who has the say, with the client's wish for recursion repeated.
    let flags = [0x84 | message[2] & 1, code];
    let mut reply = [&message[..2], &flags, &[0, 1, 0, records.len() as u8]].concat();
    reply.extend([0; 4]);
    reply.extend(question.bytes);
    for record in records {
        // The name is the one at the header's end.
        reply.extend([0xc0, HEADER as u8]);
        reply.extend(question.kind.to_be_bytes());
        reply.extend(IN.to_be_bytes());
        reply.extend(TTL_S.to_be_bytes());
        reply.extend((record.len() as u16).to_be_bytes());
        reply.extend(record);
    }
    (reply, code)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, at, file] = &arguments[..] else {
        return Err("usage: names INTERFACE ADDRESS:PORT FILE".into());
    };
    let names = read(&std::fs::read_to_string(file)?);
    let at: SocketAddr = at.parse()?;
    let socket = UdpSocket::bind(at)?;
    let plan = AnswerPlan {
        interface,
        at,
        cells: CELLS,
        echo: ECHO,
        per_second: 100_000,
    };
    let mut answers = Answers::start(&plan, CODE)?;
    println!("{} names at {at}", names.len());
    let mut message = [0; 512];
    loop {
        let (bytes, client) = socket.recv_from(&mut message)?;
        let message = &message[..bytes];
        let Some(question) = question(message) else {
            continue;
        };
        let (reply, code) = answer(message, &question, &names);
        // Of names that are not there are too many.
        let is_put = code == NO_ERROR && answers.put(message, &reply);
        let note = if is_put { ", now by the kernel" } else { "" };
        println!("{} {}{note}", question.kind, question.name);
        // A client that has gone is no failure of the service.
        let _ = socket.send_to(&reply, client);
    }
}
