//! `abi/answer.h`: replies that the kernel side gives to datagrams (ECalls-05 §3.1.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The abstract name at which a holder lends its cells, but for the port's digits.
pub const ANSWER_NAME: &str = "ecalls-answer/";
/// Bytes of a datagram that E-code sees.
pub const ANSWER_PREFIX: usize = 144;
/// Bytes of a reply.
pub const ANSWER_REPLY: usize = 1200;
/// Bytes that are echoed, at most.
pub const ANSWER_ECHO: usize = 16;
/// Cells, at most.
pub const ANSWER_CELLS: u32 = 65536;
/// A reply is at most so many times as long as its request.
pub const ANSWER_TIMES: usize = 3;
/// E-code says: the datagram goes on to the socket.
pub const ANSWER_UP: i32 = -1;
/// E-code says: the datagram ends here.
pub const ANSWER_DROP: i32 = -2;

/// `struct ecalls_answer_cell`: a reply, and the request to which it is one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnswerCell {
    /// Odd: it is being written; 0: never.
    pub sequence: u64,
    /// 0: any request.
    pub request_bytes: u32,
    /// 0: there is no reply.
    pub reply_bytes: u32,
    /// Of the reply's 16-bit words.
    pub sum: u64,
    /// Without what is echoed.
    pub request: [u8; ANSWER_PREFIX],
    /// Without what is echoed.
    pub reply: [u8; ANSWER_REPLY],
}

const _: () = assert!(
    size_of::<AnswerCell>() == 24 + ANSWER_PREFIX + ANSWER_REPLY,
    "answer cell"
);

/// `struct ecalls_answer_input`: what E-code sees of a datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct AnswerInput {
    /// Of the whole datagram.
    pub length: u32,
    /// `AF_INET` or `AF_INET6`.
    pub family: u16,
    /// Network byte order.
    pub remote_port: u16,
    /// Of IPv4 the first 4 bytes.
    pub remote_ip: [u8; 16],
    /// The first bytes of the datagram, then zeros.
    pub data: [u8; ANSWER_PREFIX],
}

const _: () = assert!(size_of::<AnswerInput>() == 168, "data of one event");

/// `struct ecalls_answer_count`: what became of the packets. Each is counted once.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct AnswerCount {
    /// They got a reply.
    pub answered: u64,
    /// They were dropped, as E-code said. All others went on.
    pub dropped: u64,
    /// No plain datagrams for the port: E-code did not see them.
    pub passed: u64,
    /// Their checksum is wrong, or nobody has verified it.
    pub unproven: u64,
    /// E-code ended in a fault.
    pub failed: u64,
    /// E-code said so.
    pub up: u64,
    /// The cell has no reply, or there is no such cell.
    pub empty: u64,
    /// The cell was being written.
    pub torn: u64,
    /// The cell has the reply to another request.
    pub other: u64,
    /// The reply is more than [`ANSWER_TIMES`] as long as the request.
    pub too_long: u64,
    /// More replies in a second than allowed.
    pub limited: u64,
    /// There was no memory for the reply.
    pub unsent: u64,
}

impl AnswerCount {
    /// Adds what another CPU has counted.
    pub fn add(&mut self, other: &AnswerCount) {
        let from = other.as_bytes().as_chunks::<8>().0;
        for (to, from) in self
            .as_mut_bytes()
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(from)
        {
            *to = (u64::from_ne_bytes(*to) + u64::from_ne_bytes(*from)).to_ne_bytes();
        }
    }

    /// All packets.
    pub fn seen(&self) -> u64 {
        let words = self.as_bytes().as_chunks::<8>().0;
        words.iter().map(|word| u64::from_ne_bytes(*word)).sum()
    }
}

/// `struct ecalls_answer_lease`: the begin of what a holder sends; the text follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AnswerLease {
    /// `ABI_VERSION`.
    pub version: u32,
    /// How many there are.
    pub cells: u32,
    /// The first bytes of a reply that are its request's.
    pub echo_bytes: u32,
    /// Bytes of the text.
    pub text_bytes: u32,
}
