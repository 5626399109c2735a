//! Replies that are kept ready for the kernel side: the process's half of `abi/answer.h`, and a
//! model of the kernel side's ([`read`]).
//!
//! A cell is a sequence lock. The one writer makes `sequence` odd, writes the other words, and
//! makes it even; a reader copies them between two looks at it, and drops the copy unless both
//! found the same even number. The writer's first store is before its others, and the reader's last
//! look after its copy, by a barrier each. So a copy that has one word of a later write finds
//! `sequence` changed.
//!
//! Words behind what a cell has of a request are 0, as the reader compares whole words; those
//! behind its reply are not read.

use core::mem::offset_of;

use ecalls_abi::answer::{ANSWER_PREFIX, ANSWER_REPLY, AnswerCell};

use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::Words;

/// Words of a cell.
pub const CELL_WORDS: usize = size_of::<AnswerCell>() / 8;
const BYTES: usize = offset_of!(AnswerCell, request_bytes) / 8;
const SUM: usize = offset_of!(AnswerCell, sum) / 8;
const REQUEST: usize = offset_of!(AnswerCell, request) / 8;
const REPLY: usize = offset_of!(AnswerCell, reply) / 8;

/// The cells, for their one writer.
#[derive(Clone, Debug)]
pub struct Cells<W> {
    words: W,
}

fn cell_of(words: &[AtomicU64], number: u32) -> Option<&[AtomicU64]> {
    let begin = (number as usize).checked_mul(CELL_WORDS)?;
    words.get(begin..begin.checked_add(CELL_WORDS)?)
}

/// The eight bytes from `at` on, of which those behind the end are 0.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_ne_bytes(word)
}

/// The folded sum of the 16-bit words, as they are in memory (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|pair| {
        let pair = [pair[0], pair.get(1).copied().unwrap_or(0)];
        u64::from(u16::from_ne_bytes(pair))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Both lengths as one word.
fn lengths(request: usize, reply: usize) -> u64 {
    let [request, reply] = [request, reply].map(|bytes| (bytes as u32).to_ne_bytes());
    let mut word = [0; 8];
    word[..4].copy_from_slice(&request);
    word[4..].copy_from_slice(&reply);
    u64::from_ne_bytes(word)
}

impl<W: Words> Cells<W> {
    /// The cells in that memory.
    pub fn new(words: W) -> Cells<W> {
        Cells { words }
    }

    /// Gives a cell the reply to a request (empty: to any). What is echoed is 0 in both. False:
    /// there is no such cell, or one of them is too long.
    pub fn write(&mut self, number: u32, request: &[u8], reply: &[u8]) -> bool {
        let Some(cell) = cell_of(self.words.words(), number) else {
            return false;
        };
        if request.len() > ANSWER_PREFIX || reply.len() > ANSWER_REPLY {
            return false;
        }
        let former = cell[0].load(Ordering::Relaxed);
        // A writer that was killed within has left an odd number.
        let odd = former | 1;
        cell[0].store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let lengths = lengths(request.len(), reply.len());
        cell[BYTES].store(lengths, Ordering::Relaxed);
        cell[SUM].store(sum(reply), Ordering::Relaxed);
        for (at, word) in cell[REQUEST..REPLY].iter().enumerate() {
            // Further ones are not compared.
            if at * 8 < request.len() {
                word.store(word_at(request, at * 8), Ordering::Relaxed);
            }
        }
        for (at, word) in cell[REPLY..].iter().enumerate() {
            if at * 8 < reply.len() {
                word.store(word_at(reply, at * 8), Ordering::Relaxed);
            }
        }
        // 0 is an empty cell's.
        let even = odd.wrapping_add(1);
        cell[0].store(if even == 0 { 2 } else { even }, Ordering::Release);
        true
    }

    /// Takes the cell's reply away. False: there is no such cell.
    pub fn clear(&mut self, number: u32) -> bool {
        self.write(number, &[], &[])
    }

    /// Whether the cell has the reply to this request; what is echoed is 0.
    pub fn has(&self, number: u32, request: &[u8]) -> bool {
        let Some(cell) = cell_of(self.words.words(), number) else {
            return false;
        };
        let word = |at: usize| cell[at].load(Ordering::Relaxed);
        let [reply, given] = [word(BYTES), lengths(request.len(), 0)];
        let only_reply = lengths(0, usize::MAX);
        reply & !only_reply == given
            && reply & only_reply != 0
            && (0..request.len().min(ANSWER_PREFIX))
                .step_by(8)
                .all(|at| word(REQUEST + at / 8) == word_at(request, at))
    }
}

/// Kernel side: the words that a reader of the cell takes, if none is torn: `sum`, and the first
/// word of the reply.
pub fn read(words: &[AtomicU64], number: u32) -> Option<[u64; 2]> {
    let cell = cell_of(words, number)?;
    let sequence = cell[0].load(Ordering::Relaxed);
    if sequence == 0 || sequence & 1 == 1 {
        return None;
    }
    // In the kernel an exchange is a full barrier.
    fence(Ordering::SeqCst);
    let taken = [SUM, REPLY].map(|at| cell[at].load(Ordering::Relaxed));
    fence(Ordering::SeqCst);
    (cell[0].load(Ordering::Relaxed) == sequence).then_some(taken)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::words::zeroed;

    #[test]
    fn cell_has_what_was_written_last_and_nothing_when_it_is_cleared() {
        let words = zeroed(2 * CELL_WORDS);
        let mut cells = Cells::new(&words);
        assert_eq!(read(&words, 1), None, "it was never written");
        assert!(cells.write(1, b"get key\r\n", b"a longer reply"));
        assert!(cells.has(1, b"get key\r\n") && !cells.has(1, b"get key\r"));
        assert!(!cells.has(1, b"get kez\r\n") && !cells.has(0, b"get key\r\n"));
        assert!(cells.write(1, b"get k\r\n", b"b"));
        let reply = u64::from_ne_bytes(*b"b\0\0\0\0\0\0\0");
        assert_eq!(read(&words, 1), Some([reply, reply]));
        assert!(cells.has(1, b"get k\r\n"));
        assert!(cells.clear(1) && !cells.has(1, b"get k\r\n") && !cells.has(1, b""));
        assert!(cells.write(1, b"", b"to all") && cells.has(1, b""));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let words = zeroed(CELL_WORDS + 1);
        let mut cells = Cells::new(&words);
        assert!(!cells.write(1, b"", b"x") && !cells.write(u32::MAX, b"", b"x"));
        assert!(!cells.write(0, &[1; ANSWER_PREFIX + 1], b"x"));
        assert!(!cells.write(0, b"x", &[1; ANSWER_REPLY + 1]));
        assert_eq!(read(&words, 0), None);
        assert!(cells.write(0, &[1; ANSWER_PREFIX], &[1; ANSWER_REPLY]));
        assert!(cells.has(0, &[1; ANSWER_PREFIX]));
    }

    #[test]
    fn sum_is_that_of_the_words_with_the_carries() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0xff, 0xff, 1, 0]), sum(&[1, 0]));
        assert_eq!(sum(&[7]), sum(&[7, 0]));
        assert_eq!(sum(&[0xff; 1200]), 0xffff);
    }

    #[test]
    fn a_writer_goes_on_where_one_was_killed() {
        let words = zeroed(CELL_WORDS);
        words[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(read(&words, 0), None);
        assert!(Cells::new(&words).write(0, b"", b"x"));
        assert!(read(&words, 0).is_some());
    }
}
