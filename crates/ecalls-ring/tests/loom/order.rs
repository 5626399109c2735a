//! The barriers of the kernel side (`bpf/event/order.h`), on a processor that reorders plain
//! loads and stores.
//!
//! Each model repeats some lines of C: a plain access is a relaxed one here, a barrier is a fence,
//! and what the application does is as in this crate. Each model is also run without the barriers,
//! and must fail then: so no barrier is superfluous, and the models see what they are for.
//!
//! Data that is not atomic is a loom cell, of which loom reports concurrent accesses. So a load
//! that a processor would move behind a later store is seen here, too.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};

use crate::{model, race};

/// Whether `order_loads()` and `order_stores()` do something.
#[derive(Clone, Copy)]
struct Barrier(bool);

impl Barrier {
    fn here(self) {
        if self.0 {
            fence(SeqCst);
        }
    }
}

/// A model as two tests: with its barriers it holds, without them it fails.
macro_rules! needs_its_barriers {
    ($with:ident, $without:ident, $failure:literal, $run:expr) => {
        #[test]
        fn $with() {
            model(|| $run(Barrier(true)));
        }

        #[test]
        #[should_panic(expected = $failure)]
        fn $without() {
            model(|| $run(Barrier(false)));
        }
    };
}

fn words<const N: usize>() -> Arc<[AtomicU64; N]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

// memory_put(): a row is given to channel 2, first its id and then its segment.
needs_its_barriers!(
    event_is_stored_in_no_segment_of_another_channel,
    event_reaches_another_channel_without_order_of_loads,
    "segment 2",
    |barrier: Barrier| {
        let row = words::<2>();
        let host = row.clone();
        let give = move || {
            host[0].store(2, Relaxed);
            fence(SeqCst); // a system call
            host[1].store(2, Relaxed);
        };
        let (_, (segment, id)) = race([give], move || {
            let segment = row[1].load(Relaxed);
            barrier.here();
            (segment, row[0].load(Relaxed))
        });
        assert!(segment == 0 || id == 2, "channel {id}, segment {segment}");
    }
);

// ring_put(): `front` is read before `back`, and so does not exceed it.
needs_its_barriers!(
    front_does_not_exceed_a_back_that_is_read_after_it,
    ring_seems_full_without_order_of_loads,
    " > ",
    |barrier: Barrier| {
        let head = words::<2>();
        let other = head.clone();
        let pass = move || {
            other[1].fetch_add(1, SeqCst);
            other[0].store(1, Release); // the reader has read the event
        };
        let (_, (front, back)) = race([pass], move || {
            let front = head[0].load(Relaxed);
            barrier.here();
            (front, head[1].load(Relaxed))
        });
        assert!(front <= back, "{front} > {back}");
    }
);

// drain_ring(): the application stores the next call in the place of one that was taken.
needs_its_barriers!(
    deferred_call_is_copied_before_its_place_is_free,
    deferred_call_is_overwritten_without_order,
    "Causality violation",
    |barrier: Barrier| {
        let (head, call) = (words::<2>(), Arc::new(UnsafeCell::new(0_u64)));
        let (application, place) = (head.clone(), call.clone());
        let defer = move || {
            place.with_mut(|_| ());
            application[1].store(1, Release);
            if application[0].load(Acquire) == 1 {
                place.with_mut(|_| ());
            }
        };
        race([defer], move || {
            if head[1].load(Relaxed) == 1 {
                barrier.here();
                call.with(|_| ());
                barrier.here();
                head[0].store(1, Relaxed);
            }
        });
    }
);

// latest_copy(): the number is even and the same before and after the copy.
needs_its_barriers!(
    copy_of_a_latest_value_is_whole,
    copy_of_a_latest_value_is_torn_without_order_of_loads,
    "] at ",
    |barrier: Barrier| {
        let cell = words::<3>();
        let application = cell.clone();
        let set = move || {
            application[0].store(1, Relaxed);
            fence(Release);
            application[1].store(7, Relaxed);
            application[2].store(7, Relaxed);
            application[0].store(2, Release);
        };
        let (_, (before, copy, after)) = race([set], move || {
            let before = cell[0].load(Relaxed);
            barrier.here();
            let copy = [cell[1].load(Relaxed), cell[2].load(Relaxed)];
            barrier.here();
            (before, copy, cell[0].load(Relaxed))
        });
        let whole = before % 2 == 0 && before == after;
        assert!(!whole || copy[0] == copy[1], "{copy:?} at {before}");
    }
);

// frame_put(), window_tell_answer(), coop_window(): a number follows what it publishes.
needs_its_barriers!(
    answer_is_complete_when_its_number_changes,
    number_of_an_answer_passes_it_without_order_of_stores,
    "the result is 0",
    |barrier: Barrier| {
        let frame = words::<2>();
        let kernel = frame.clone();
        let answer = move || {
            kernel[1].store(7, Relaxed);
            barrier.here();
            kernel[0].store(1, Relaxed);
        };
        let (_, (number, result)) = race([answer], move || {
            (frame[0].load(Acquire), frame[1].load(Relaxed))
        });
        assert!(number == 0 || result == 7, "the result is {result}");
    }
);

// coop_write(), coop_sink(): the owner's number is cleared first, and written last.
needs_its_barriers!(
    binding_is_read_whole_or_not_at_all,
    binding_is_read_in_parts_without_order,
    "slot 1 of channel 2",
    |barrier: Barrier| {
        let binding = words::<2>();
        binding[0].store(1, Relaxed);
        binding[1].store(1, Relaxed);
        let thread = binding.clone();
        let write = move || {
            thread[0].store(0, Relaxed);
            barrier.here();
            thread[1].store(2, Relaxed);
            barrier.here();
            thread[0].store(2, Relaxed);
        };
        let (_, (channel, slot)) = race([write], move || {
            let channel = binding[0].load(Relaxed);
            barrier.here();
            (channel, binding[1].load(Relaxed))
        });
        assert!(
            channel != 2 || slot == 2,
            "slot {slot} of channel {channel}"
        );
    }
);
