//! Shows: the adaptive video player of the Cooperative Polling paper (Figure 3) in outline. Frames
//! arrive, are decoded piece by piece as best-effort events, the important ones first, and shown
//! by a timer at their time; those that are not ready by then are dropped by another timer. Decoder
//! and screen are left out: a loop that computes, and nothing.
//! Needs: nothing. With GROUP (a number, 0: none) it polls cooperatively, which needs root or the
//! daemon, and is answered while `ecalls sched start` runs.
//! Run:   cargo run --release -p ecalls-loop --example frames -- [SECONDS [FPS [PIECES [GROUP]]]]
//! Expect: the frame rate, and how late timers were. With more pieces per frame than the CPU can
//! compute in time (try 3000) the frame rate falls, and the frames that are shown are on time.

use std::cell::Cell;
use std::rc::Rc;

use ecalls::Ecalls;
use ecalls_loop::{Error, Loop, Result, Turn, best_effort, timer};

/// Steps of one piece of decoding: some 20 us, so that a timer never waits longer.
const STEPS: u32 = 20_000;
/// How long before its time a frame arrives, in frames.
const AHEAD: u64 = 8;
/// Every so many frames one is important: others build upon it.
const GROUP: u64 = 12;

struct Player {
    start_ns: u64,
    period_ns: u64,
    frames: u64,
    pieces: u32,
    shown: Cell<u64>,
    dropped: Cell<u64>,
}

impl Player {
    /// When frame `number` is to be shown.
    fn show_ns(&self, number: u64) -> u64 {
        self.start_ns + (number + AHEAD) * self.period_ns
    }

    /// What decides which frame is decoded first: its number. An important one goes before the
    /// others of its group and of the group before.
    fn virtual_time(number: u64) -> u64 {
        match number % GROUP {
            0 => number,
            _ => number + GROUP,
        }
    }

    /// A frame has arrived: decode it when there is time, and give it up at its time.
    fn receive(self: &Rc<Self>, turn: &Turn<'_>, number: u64) -> Result<()> {
        let expiry = Rc::new(Cell::new(None));
        let (player, its_expiry) = (Rc::clone(self), Rc::clone(&expiry));
        let mut left = self.pieces;
        let when = best_effort(Player::virtual_time(number));
        let decode = turn.submit(when, move |turn| {
            compute();
            left -= 1;
            if left > 0 {
                return turn.again(when);
            }
            // The paper's player does so before the first piece: then a frame that was begun is
            // shown, if late. Here a frame is on time or not shown.
            if let Some(expiry) = its_expiry.take() {
                turn.cancel(expiry);
            }
            player.decoded(turn, number);
        })?;
        let player = Rc::clone(self);
        let give_up = move |turn: &Turn<'_>| {
            turn.cancel(decode);
            player.done(turn, &player.dropped);
        };
        let event = turn.submit(timer(self.show_ns(number)), give_up)?;
        expiry.set(Some(event));
        Ok(())
    }

    /// A frame is decoded: show it at its time.
    fn decoded(self: &Rc<Self>, turn: &Turn<'_>, number: u64) {
        let player = Rc::clone(self);
        let show = move |turn: &Turn<'_>| player.done(turn, &player.shown);
        if turn.submit(timer(self.show_ns(number)), show).is_err() {
            self.done(turn, &self.dropped);
        }
    }

    fn done(&self, turn: &Turn<'_>, count: &Cell<u64>) {
        count.set(count.get() + 1);
        if self.shown.get() + self.dropped.get() == self.frames {
            turn.stop();
        }
    }
}

/// Decodes a piece.
fn compute() {
    let mut state = 1_u64;
    for _ in 0..STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    std::hint::black_box(state);
}

/// The argument at `at`, or what is usual.
fn argument(at: usize, usual: u32) -> u32 {
    let given = std::env::args().nth(at);
    given
        .and_then(|text| text.parse().ok())
        .filter(|number| *number > 0)
        .unwrap_or(usual)
}

fn main() -> Result<()> {
    let (seconds, fps, pieces) = (argument(1, 2), argument(2, 30), argument(3, 200));
    // `ecalls run --group` says it, too.
    let group = std::env::args()
        .nth(4)
        .or_else(|| std::env::var("ECALLS_GROUP").ok());
    let group = group.and_then(|text| text.parse().ok());
    let channel = match group {
        Some(_) => Some(Ecalls::open().and_then(|ecalls| ecalls.channel().open()))
            .transpose()
            .map_err(Error::Slot)?,
        None => None,
    };
    let events = match (&channel, group) {
        (Some(channel), Some(group)) => Loop::by_slot(channel.caller(), 0, group)?,
        _ => Loop::new()?,
    };
    let player = Rc::new(Player {
        start_ns: events.now_ns(),
        period_ns: 1_000_000_000 / u64::from(fps),
        frames: u64::from(seconds) * u64::from(fps),
        pieces,
        shown: Cell::new(0),
        dropped: Cell::new(0),
    });
    let (theirs, mut number) = (Rc::clone(&player), 0);
    events.submit(timer(player.start_ns), move |turn| {
        if let Err(error) = theirs.receive(turn, number) {
            eprintln!("frames: {error}");
            return turn.stop();
        }
        number += 1;
        if number < theirs.frames {
            turn.again(timer(theirs.start_ns + number * theirs.period_ns));
        }
    })?;
    events.run()?;
    println!("timing: {}", events.timing());
    let took_ns = events.now_ns() - player.start_ns;
    let (shown, dropped) = (player.shown.get(), player.dropped.get());
    let rate = shown as f64 * 1e9 / took_ns as f64;
    println!("frames: {shown} shown, {dropped} dropped, {rate:.1} per second");
    let tardiness = events.tardiness();
    let us = |ns: u64| ns as f64 / 1000.0;
    println!(
        "timers: {}, late by p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        tardiness.timers,
        us(tardiness.p50_ns),
        us(tardiness.p99_ns),
        us(tardiness.max_ns)
    );
    Ok(())
}
