//! The sequence window of a source against the set of numbers that have arrived, and the check of
//! headers against every byte that a network can deliver.

use std::collections::HashSet;

use algorithms::full;
use ecalls_abi::downcall::ATTRIBUTES;
use ecalls_abi::lane::{FRAME_MALFORMED, FRAME_SIZE, FRAME_VERSION, Window};
use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::{WIRE_ATTRIBUTES, WIRE_KINDS, WIRE_VERSION, Wire};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use proptest::prelude::*;

const FRESH: i32 = 0;
const DUPLICATE: i32 = 1;
const STALE: i32 = 2;
const BITS: u64 = 64;

/// The numbers of one epoch that have arrived: what the window may forget, this remembers.
#[derive(Default)]
struct Arrived {
    numbers: HashSet<u64>,
    highest: u64,
}

impl Arrived {
    fn take(&mut self, sequence: u64) -> i32 {
        if !self.numbers.is_empty() && sequence + BITS <= self.highest {
            return STALE;
        }
        self.highest = self.highest.max(sequence);
        match self.numbers.insert(sequence) {
            true => FRESH,
            false => DUPLICATE,
        }
    }

    fn missing(&self) -> u64 {
        let Some(first) = self.numbers.iter().min() else {
            return 0;
        };
        self.highest - first + 1 - self.numbers.len() as u64
    }
}

/// Numbers as a network delivers them: mostly in order, some repeated, some late, some lost.
fn deliveries() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0..70u64, 0..3u64), 1..400).prop_map(|steps| {
        let mut at = 100;
        let numbers = steps.into_iter().map(|(back, forth)| {
            at += forth;
            if back < 40 { at } else { at - (back - 40) * 3 }
        });
        numbers.collect()
    })
}

proptest! {
    #[test]
    fn each_number_is_fresh_once_and_those_that_are_missing_are_counted(numbers in deliveries()) {
        let (mut window, mut arrived) = (Window::default(), Arrived::default());
        let (mut duplicate, mut stale) = (0, 0);
        for (now_ns, sequence) in (1..).zip(numbers) {
            let expected = arrived.take(sequence);
            prop_assert_eq!(full().window_take(&mut window, 7, sequence, now_ns), expected);
            duplicate += u64::from(expected == DUPLICATE);
            stale += u64::from(expected == STALE);
            prop_assert_eq!(full().window_missing(&window), arrived.missing());
            prop_assert_eq!(window.missing(), arrived.missing(), "the mirror's own");
            prop_assert_eq!(window.fresh, arrived.numbers.len() as u64);
            prop_assert_eq!((window.duplicate, window.stale), (duplicate, stale));
        }
    }

    #[test]
    fn frames_of_all_epochs_are_fresh_or_missing(
        epochs in prop::collection::vec((1..50u64, 1..30u64), 1..10),
    ) {
        let mut window = Window::default();
        let (mut sent, mut fresh) = (0, 0);
        for (epoch, (first, count)) in (1..).zip(epochs) {
            // Every third frame but the first and the last is lost.
            for number in (0..count).filter(|number| number % 3 != 1 || number + 1 == count) {
                fresh += 1;
                let taken = full().window_take(&mut window, epoch, first + number, fresh);
                prop_assert_eq!(taken, FRESH);
            }
            sent += count;
            prop_assert_eq!(window.fresh + full().window_missing(&window), sent);
        }
        prop_assert_eq!(window.fresh, fresh);
    }

    #[test]
    fn any_window_and_any_frame_keep_the_counts_together(
        bytes in prop::collection::vec(any::<u8>(), size_of::<Window>()),
        epoch in 1..=u64::MAX,
        sequence in 1..=u64::MAX,
        now_ns in any::<u64>(),
    ) {
        let before = Window::read_from_bytes(&bytes).expect("the size");
        let mut window = before;
        let taken = full().window_take(&mut window, epoch, sequence, now_ns);
        let grown = [
            window.fresh.wrapping_sub(before.fresh),
            window.duplicate.wrapping_sub(before.duplicate),
            window.stale.wrapping_sub(before.stale),
        ];
        let mut expected = [0; 3];
        expected[usize::try_from(taken).expect("one of three")] = 1;
        prop_assert_eq!(grown, expected);
    }

    #[test]
    fn any_header_that_passes_has_only_possible_values(
        bytes in prop::collection::vec(any::<u8>(), size_of::<Wire>()),
        small in any::<u64>(),
        size in 0..=DATA_MAX as u16 + 2,
        spare in 0..3u32,
    ) {
        let mut wire = Wire::read_from_bytes(&bytes).expect("the size");
        // Else hardly any would pass.
        wire.size = size;
        for (bit, field) in [&mut wire.request, &mut wire.sinks].into_iter().enumerate() {
            *field &= u64::from(small >> bit & 3 == 3);
        }
        wire.kind %= WIRE_KINDS + 1;
        wire.attributes %= WIRE_ATTRIBUTES as u32 + 2;
        wire.version = if small >> 8 & 7 == 7 { wire.version } else { WIRE_VERSION };
        for number in &mut wire.number {
            *number &= if small >> 16 & 7 == 7 { 63 } else { 31 };
        }
        let given = size_of::<Wire>() as u32 + u32::from(size) + (spare / 2);
        let is_whole = usize::from(size) <= DATA_MAX && spare < 2;
        let is_possible = wire.channel != 0 && wire.host != 0 && wire.epoch != 0
            && wire.sequence != 0 && wire.request == 0 && wire.sinks == 0
            && wire.kind < WIRE_KINDS && wire.attributes <= WIRE_ATTRIBUTES as u32
            && wire.number.iter().all(|number| usize::from(*number) < ATTRIBUTES);
        let expected = match (wire.version == WIRE_VERSION, is_whole, is_possible) {
            (false, ..) => FRAME_VERSION as i32,
            (_, false, _) => FRAME_SIZE as i32,
            (.., false) => FRAME_MALFORMED as i32,
            _ => -1,
        };
        prop_assert_eq!(full().frame_check(&wire, given), expected, "{:?}", wire.as_bytes());
    }
}

#[test]
fn a_clock_that_was_set_back_is_believed_after_a_silence() {
    let (table, mut window) = (full(), Window::default());
    assert_eq!(table.window_take(&mut window, 1000, 5, 1_000_000), FRESH);
    let silence_ns = table.window_silence_ns;
    let until = 1_000_000 + silence_ns;
    assert_eq!(table.window_take(&mut window, 10, 1, until - 1), STALE);
    assert_eq!(table.window_take(&mut window, 10, 1, until), FRESH);
    assert_eq!((window.epoch, window.first), (10, 1));
    assert_eq!(table.window_take(&mut window, 10, 1, until + 1), DUPLICATE);
}
