//! Deferred calls and their drain. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecalls_abi::Op;
use ecalls_abi::downcall::{DOWN_CAPACITY, DOWN_COOP, DRAIN_MAX, LATEST};
use ecalls_ring::defer::{CAPACITY, DOWN_WORDS, NoSuchCell, frame_result};
use ecalls_ring::words::zeroed;
use ecalls_ring::{BadSegment, DeferWriter, Drain, Full};

const SET: u32 = Op::Set as u32;

#[test]
fn model_and_contract_agree_on_every_size() {
    assert_eq!((CAPACITY, DOWN_WORDS), (DOWN_CAPACITY, DOWN_COOP * 8));
    let short = zeroed(DOWN_WORDS - 1);
    let error = BadSegment::TooShort {
        words: DOWN_WORDS - 1,
        needed: DOWN_WORDS,
    };
    assert_eq!(DeferWriter::new(&short).err(), Some(error));
    assert_eq!(Drain::new(&short).err(), Some(error));
}

#[test]
fn calls_are_handled_once_in_order_and_in_bounded_batches() {
    const CALLS: usize = DRAIN_MAX + 36;
    let words = zeroed(DOWN_WORDS);
    let (mut writer, mut drain) = (
        DeferWriter::new(&words).unwrap(),
        Drain::new(&words).unwrap(),
    );
    for number in 0..CALLS as u64 {
        writer.push(SET, [number, number + 1, number + 2]).unwrap();
    }
    assert_eq!(writer.pending(), CALLS);
    let mut handled = Vec::new();
    let mut handle = |call: &ecalls_abi::Downcall| {
        assert_eq!((call.op, call.argument[2]), (SET, call.argument[0] + 2));
        handled.push(call.argument[0]);
        call.argument[0] != 5
    };
    assert_eq!(drain.drain(&mut handle), DRAIN_MAX);
    assert_eq!(writer.pending(), CALLS - DRAIN_MAX);
    assert_eq!(drain.drain(&mut handle), CALLS - DRAIN_MAX);
    assert_eq!(drain.drain(&mut handle), 0);
    assert_eq!(handled, (0..CALLS as u64).collect::<Vec<u64>>());
    let counts = [9, 10, 11].map(|word: usize| words[word].load(Ordering::Relaxed));
    assert_eq!(counts, [CALLS as u64, 1, 2], "handled, refused, drains");
}

#[test]
fn full_ring_refuses_and_goes_on_after_a_drain() {
    let words = zeroed(DOWN_WORDS);
    let (mut writer, mut drain) = (
        DeferWriter::new(&words).unwrap(),
        Drain::new(&words).unwrap(),
    );
    for number in 0..CAPACITY as u64 {
        writer.push(SET, [number; 3]).unwrap();
    }
    assert_eq!(writer.push(SET, [0; 3]), Err(Full));
    drain.drain(|_| true);
    assert_eq!(writer.push(SET, [0; 3]), Ok(()));
    assert_eq!(writer.pending(), CAPACITY - DRAIN_MAX + 1);
}

#[test]
fn only_the_latest_value_of_a_cell_is_handled() {
    let words = zeroed(DOWN_WORDS);
    let (mut writer, mut drain) = (
        DeferWriter::new(&words).unwrap(),
        Drain::new(&words).unwrap(),
    );
    for value in 0..10 {
        writer.set_latest(3, SET, [3, value, 0]).unwrap();
        writer.set_latest(15, SET, [15, value, 0]).unwrap();
    }
    assert_eq!(
        writer.set_latest(16, SET, [0; 3]),
        Err(NoSuchCell { cell: LATEST })
    );
    assert_eq!(writer.pending_latest(), 1 << 3 | 1 << 15);
    let mut handled = Vec::new();
    assert_eq!(
        drain.drain(|call| {
            handled.push(call.argument);
            true
        }),
        2
    );
    assert_eq!(
        (handled, writer.pending_latest()),
        (vec![[3, 9, 0], [15, 9, 0]], 0)
    );
}

#[test]
fn next_writer_goes_on_where_the_last_one_died() {
    let words = zeroed(DOWN_WORDS);
    let mut writer = DeferWriter::new(&words).unwrap();
    writer.push(SET, [1; 3]).unwrap();
    let sequence = &words[(68 + 2) * 8 + 5];
    sequence.store(7, Ordering::Relaxed);
    let mut writer = DeferWriter::new(&words).unwrap();
    writer.push(SET, [2; 3]).unwrap();
    writer.set_latest(2, SET, [3; 3]).unwrap();
    assert_eq!(sequence.load(Ordering::Relaxed), 10);
    let mut handled = Vec::new();
    Drain::new(&words).unwrap().drain(|call| {
        handled.push(call.argument[0]);
        true
    });
    assert_eq!(handled, [1, 2, 3]);
}

#[test]
fn result_of_a_fast_call_is_read_from_its_frame() {
    let words = zeroed(DOWN_WORDS);
    words[(4 + 63) * 8 + 4].store(-22i64 as u64, Ordering::Relaxed);
    words[(4 + 63) * 8 + 5].store(9, Ordering::Relaxed);
    assert_eq!(frame_result(&words, 63), Some((9, -22)));
    assert_eq!(
        (frame_result(&words, 64), frame_result(&words[..4], 0)),
        (None, None)
    );
}

#[test]
fn threads_hand_over_every_call_and_the_latest_value() {
    const CALLS: u64 = if cfg!(miri) { 20 } else { 100_000 };
    let words = Arc::new(zeroed(DOWN_WORDS));
    let mut writer = DeferWriter::new(words.clone()).unwrap();
    let producer = std::thread::spawn(move || {
        for number in 1..=CALLS {
            while writer.push(SET, [number; 3]) == Err(Full) {
                std::thread::yield_now();
            }
            writer.set_latest(0, Op::Nop.raw(), [number; 3]).unwrap();
        }
    });
    let mut drain = Drain::new(words).unwrap();
    let (mut next, mut latest) = (1, 0);
    while next <= CALLS || latest < CALLS {
        std::thread::yield_now();
        drain.drain(|call| {
            assert_eq!(call.argument, [call.argument[0]; 3], "the copy is torn");
            if call.op == SET {
                assert_eq!(call.argument[0], next);
                next += 1;
            } else {
                assert!(call.argument[0] >= latest);
                latest = call.argument[0];
            }
            true
        });
    }
    producer.join().unwrap();
}
