//! Which sockets may be ready: no hint is missed, whatever the thread does meanwhile.
//!
//! A socket is a word: what has come. The kernel side writes there before it hints, as the kernel
//! does; the process reads there after it took the hint.

use std::mem::offset_of;

use ecalls_abi::ready::Readiness;
use ecalls_ring::ready::hint;
use ecalls_ring::words::zeroed;
use ecalls_ring::{AtomicU64, Ready};
use loom::sync::Arc;
use loom::sync::atomic::Ordering;

use super::{Segment, model, race};

/// The words before those of descriptors, and those of the first 64.
const WORDS: usize = offset_of!(Readiness, word) / 8 + 2;

struct World {
    memory: Segment,
    sockets: Arc<[AtomicU64; 2]>,
}

fn world() -> (World, Ready<Segment>) {
    let memory = Segment(Arc::new(zeroed(WORDS)));
    let sockets = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let ready = Ready::new(memory.clone());
    (World { memory, sockets }, ready)
}

impl World {
    /// Something comes for that descriptor. True: the process is woken.
    fn arrival(&self, descriptor: u32) -> impl FnOnce() -> bool + Send + 'static {
        let (memory, sockets) = (self.memory.clone(), self.sockets.clone());
        move || {
            sockets[descriptor as usize].fetch_add(1, Ordering::Relaxed);
            hint(&memory.0, descriptor)
        }
    }
}

/// Takes the hints and reads; returns what was read.
fn read(ready: &mut Ready<Segment>, sockets: &[AtomicU64; 2]) -> u64 {
    let mut hinted = Vec::new();
    ready.take(|descriptor| hinted.push(descriptor as usize));
    let read = |at: usize| sockets[at].swap(0, Ordering::Relaxed);
    hinted.into_iter().map(read).sum()
}

#[test]
fn reader_that_sleeps_has_read_all_or_is_woken() {
    model(|| {
        let (world, mut ready) = world();
        ready.want(0);
        ready.take(|_| {});
        let sockets = world.sockets.clone();
        let (woken, (slept, got, mut ready)) =
            race([world.arrival(0), world.arrival(0)], move || {
                let got = read(&mut ready, &sockets);
                (ready.may_sleep(), got, ready)
            });
        let is_woken = woken != [false; 2];
        let later = read(&mut ready, &world.sockets);
        assert_eq!(got + later, 2, "something is never read");
        assert!(
            !slept || later == 0 || is_woken,
            "it sleeps, and nobody wakes it"
        );
    });
}

#[test]
fn arrivals_for_two_descriptors_of_one_word_are_both_found() {
    model(|| {
        let (world, mut ready) = world();
        ready.want(0);
        ready.want(1);
        ready.take(|_| {});
        let sockets = world.sockets.clone();
        let producers = [world.arrival(0), world.arrival(1)];
        let (woken, (slept, got, mut ready)) = race(producers, move || {
            let got = read(&mut ready, &sockets);
            (ready.may_sleep(), got, ready)
        });
        let later = read(&mut ready, &world.sockets);
        assert_eq!(got + later, 2, "something is never read");
        assert!(!slept || later == 0 || woken != [false; 2]);
    });
}

#[test]
fn interest_that_ends_and_begins_misses_nothing() {
    model(|| {
        let (world, mut ready) = world();
        ready.want(0);
        ready.take(|_| {});
        let sockets = world.sockets.clone();
        let producers = [world.arrival(0), world.arrival(0)];
        let (woken, (slept, got, mut ready)) = race(producers, move || {
            ready.unwant(0);
            ready.want(0);
            let got = read(&mut ready, &sockets);
            (ready.may_sleep(), got, ready)
        });
        let later = read(&mut ready, &world.sockets);
        assert_eq!(got + later, 2, "something is never read");
        assert!(!slept || later == 0 || woken != [false; 2]);
    });
}
