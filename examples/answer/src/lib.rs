//! A key/value cache that speaks memcached's text protocol for UDP, whose hot keys the kernel
//! answers.
//!
//! Shows: [`ecalls::Answers`]. A key that was asked for, and found, is put into a cell: from then
//! on the kernel answers it, without this process. What changes the key removes it first.
//! Needs: root, for the kernel's part; without `--interface` there is none.
//! Run: `ecalls-answer --interface lo 127.0.0.1:11311`, and in another shell
//! `printf '\0\1\0\0\0\1\0\0set k 0 0 2\r\nhi\r\n' | socat -t1 - udp:127.0.0.1:11311`, then
//! the same with `get k\r\n`, three times.
//! Expect: `STORED`, then `hi` each time, of which this process has seen the first request only.
//!
//! - [`store`]: what a request does, and its reply;
//! - [`Cache`]: the socket, and the cells.
//!
//! A reply of more than 1400 bytes takes several datagrams, which the kernel leaves to the process.
//! Values live until they are deleted: expiry is refused.

#![forbid(unsafe_code)]

pub mod store;

use std::net::{SocketAddr, UdpSocket};

use ecalls::answer::AnswerCount;
use ecalls::{AnswerPlan, Answers};

use store::{HEADER, Store};

/// Finds the cell of a request.
const HOT: &str = include_str!("hot.ec");
/// As in the text.
const CELLS: u32 = 4096;
/// The first two bytes of a frame: the number by which a client knows the reply.
const ECHO: usize = 2;
/// Bytes of a datagram with a reply, as memcached has them.
const DATAGRAM: usize = 1400;

/// The cache.
#[derive(Debug)]
pub struct Cache {
    socket: UdpSocket,
    store: Store,
    answers: Option<Answers>,
}

impl Cache {
    /// Listens at that address; with an interface, whose requests the kernel answers then.
    ///
    /// # Errors
    /// Those of the socket, and of [`Answers::start`].
    pub fn open(
        at: SocketAddr,
        interface: Option<&str>,
        per_second: u64,
    ) -> Result<Cache, Box<dyn std::error::Error>> {
        let socket = UdpSocket::bind(at)?;
        let at = socket.local_addr()?;
        let start = |interface| {
            let plan = AnswerPlan {
                interface,
                at,
                cells: CELLS,
                echo: ECHO,
                per_second,
            };
            Answers::start(&plan, HOT)
        };
        Ok(Cache {
            socket,
            store: Store::default(),
            answers: interface.map(start).transpose()?,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What the kernel has done; `None`: it does nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> ecalls::Result<Option<AnswerCount>> {
        self.answers.as_ref().map(Answers::counts).transpose()
    }

    /// Serves one datagram. Returns its bytes.
    ///
    /// # Errors
    /// Those of receiving.
    pub fn serve(&mut self) -> std::io::Result<usize> {
        let mut datagram = [0; 2048];
        let (bytes, client) = self.socket.recv_from(&mut datagram)?;
        let datagram = &datagram[..bytes];
        let Some((id, text)) = store::frame(datagram) else {
            return Ok(bytes);
        };
        let reply = self.store.reply(datagram, text);
        if let (Some(answers), Some(key)) = (&mut self.answers, &reply.changed) {
            answers.remove(&get(id, key));
        }
        let parts = reply.text.chunks(DATAGRAM - HEADER);
        let total = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        for (number, part) in (0..total).zip(parts) {
            let frame = [&store::header(id, number, total)[..], part].concat();
            // Of the ways to ask for a key only one is kept: the one that is removed.
            let request = reply.hot.as_ref().filter(|_| total == 1);
            let request = request.map(|key| get(id, key));
            if let (Some(answers), Some(request)) = (&mut self.answers, request)
                && request == datagram
            {
                answers.put(&request, &frame);
            }
            // A client that has gone, or asks faster than it reads, is no failure of the cache.
            let _ = self.socket.send_to(&frame, client);
        }
        Ok(bytes)
    }
}

/// The request for a key.
fn get(id: [u8; 2], key: &[u8]) -> Vec<u8> {
    [&store::header(id, 0, 1)[..], b"get ", key, b"\r\n"].concat()
}
