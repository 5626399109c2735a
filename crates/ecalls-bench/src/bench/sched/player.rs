//! An adaptive player, as in Coop §5; known amounts of computation replace the decoder and screen.
//!
//! It is an event loop with two chains of events:
//! - a *timer* for each frame at its display time: the lateness of the call is the tardiness;
//! - *best-effort* events that decode the frames of the next second in pieces, the important ones
//!   first. Frames that are not decoded when that second begins are skipped, so the frame rate
//!   adapts to the CPU time of the player. A frame that was begun is finished.
//!
//! The user virtual time of a piece consists of the second and the number of its frames that are
//! decoded already. So players that share by it (in one group) reach the same frame rate, whatever
//! their frames cost.
//!
//! Work is counted in steps, not in time: time in which the player is interrupted decodes nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ecalls_loop::{Loop, Turn, best_effort, timer};
use hdrhistogram::Histogram;

use super::track::Track;
use super::work::{Meter, Random, Span, Usage, Work};
use crate::exit::Failure;

const SECOND_NS: u64 = 1_000_000_000;
/// More frames than any player decodes in a second.
const FRAMES_MAX: u64 = 1000;
/// Timers so close to the end are not counted, because players that have ended would affect them.
const ENDING_NS: u64 = 50_000_000;
/// A misbehaving player delays its yield once in this number of pieces, by up to this time (Coop
/// §5.5).
const DELAY_ONCE_IN: u64 = 100;
const DELAY_NS_MAX: u64 = 10_000_000;

/// The film that a player plays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clip {
    /// The time between two frames.
    pub(super) period_ns: u64,
    /// The average CPU time of a frame.
    pub(super) frame_ns: u64,
    /// All frames have the same cost. Otherwise the cost varies by second (0.95 to 1.25) and by
    /// frame (0.5 to 1.5).
    pub(super) is_steady: bool,
    /// CPU time of a best-effort event, which nothing in its loop interrupts.
    pub(super) piece_ns: u64,
    /// Whether the player delays its yields at times.
    pub(super) misbehaves: bool,
    /// Each frame is decoded at its display time and not before (viewer.rs); the first display time
    /// is so long after the beginning.
    pub(super) live_from_ns: Option<u64>,
}

/// The results of a player.
#[derive(Debug)]
pub(super) struct Played {
    /// Lateness of the frames' timers, ns.
    pub(super) late: Histogram<u64>,
    /// Frames decoded.
    pub(super) frames: u64,
    pub(super) usage: Usage,
    pub(super) track: Track,
    /// Whether a scheduler answered the last poll.
    pub(super) was_answered: bool,
}

struct Player {
    clip: Clip,
    work: Work,
    span: Span,
    meter: Meter,
    random: RefCell<Random>,
    late: RefCell<Histogram<u64>>,
    frames: Cell<u64>,
    at_start: Cell<Usage>,
    track: RefCell<Track>,
    decoding: Cell<Decoding>,
}

/// The frame that is being decoded.
#[derive(Clone, Copy, Debug, Default)]
struct Decoding {
    /// The second to which it belongs, and the number of its frames that were decoded before.
    second: u64,
    done: u64,
    /// The pieces that remain.
    pieces: u64,
    /// The cost of frames in this second, in thousandths of the average.
    pace: u64,
}

/// Plays on this loop until the span ends. `number` determines the phase and the costs of the
/// player.
pub(super) fn play(
    events: &Loop,
    clip: Clip,
    number: u64,
    work: Work,
    span: Span,
) -> Result<Played, Failure> {
    let player = Rc::new(Player {
        clip,
        work,
        span,
        meter: Meter::new(),
        random: RefCell::new(Random::new(number)),
        late: RefCell::new(super::histogram()),
        frames: Cell::new(0),
        at_start: Cell::new(Usage::default()),
        track: RefCell::new(Track::new(span)),
        decoding: Cell::new(Decoding::default()),
    });
    let phase_ns = player.random.borrow_mut().below(clip.period_ns);
    submit(events, &player, span.begin_ns + phase_ns).map_err(|error| {
        Failure::new(
            crate::exit::Code::Failed,
            format!("a player's events: {error}"),
        )
    })?;
    events
        .run()
        .map_err(|error| Failure::new(crate::exit::Code::Failed, format!("a player: {error}")))?;
    let usage = player.meter.read().since(player.at_start.get());
    let late = player.late.borrow().clone();
    let track = player.track.replace(Track::new(span));
    Ok(Played {
        late,
        frames: player.frames.get(),
        usage,
        track,
        was_answered: events.timing() == ecalls_loop::Timing::Cooperative,
    })
}

fn submit(events: &Loop, player: &Rc<Player>, first_ns: u64) -> ecalls_loop::Result<()> {
    let its = Rc::clone(player);
    let mut next_ns = first_ns;
    let counted = player.span.from_ns..player.span.end_ns.saturating_sub(ENDING_NS);
    events.submit(timer(first_ns), move |turn| {
        if counted.contains(&next_ns) {
            its.late.borrow_mut().saturating_record(turn.tardiness_ns());
        }
        let frames = its.frames.get();
        its.track.borrow_mut().look(turn.start_ns(), frames);
        next_ns += its.clip.period_ns;
        turn.again(timer(next_ns));
    })?;
    let its = Rc::clone(player);
    events.submit(timer(player.span.from_ns), move |_| {
        its.at_start.set(its.meter.read());
    })?;
    events.submit(timer(player.span.end_ns), |turn| turn.stop())?;
    let its = Rc::clone(player);
    player.begin_second(player.span.begin_ns);
    events.submit(timer(player.span.begin_ns), move |turn| its.decode(turn))?;
    Ok(())
}

impl Player {
    /// Decodes one piece; or, as a timer at the beginning of a second, starts decoding again.
    fn decode(&self, turn: &Turn<'_>) {
        if let ecalls_loop::When::Timer { .. } = turn.when() {
            self.begin_second(turn.start_ns());
            return turn.again(best_effort(self.virtual_time()));
        }
        self.work.spend(self.clip.piece_ns);
        if self.clip.misbehaves {
            self.delay();
        }
        let mut decoding = self.decoding.get();
        decoding.pieces = decoding.pieces.saturating_sub(1);
        self.decoding.set(decoding);
        if decoding.pieces > 0 {
            return turn.again(best_effort(self.virtual_time()));
        }
        let now_ns = turn.now_ns();
        if now_ns >= self.span.from_ns {
            self.frames.set(self.frames.get() + 1);
        }
        if self.second_of(now_ns) > decoding.second {
            self.begin_second(now_ns);
            return turn.again(best_effort(self.virtual_time()));
        }
        if decoding.done + 1 >= SECOND_NS / self.clip.period_ns {
            // The whole second is decoded, and the frames of the next one have not arrived.
            let next_ns = self.span.begin_ns + (decoding.second + 1) * SECOND_NS;
            return turn.again(timer(next_ns));
        }
        self.begin_frame(decoding.done + 1);
        turn.again(best_effort(self.virtual_time()));
    }

    fn second_of(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.span.begin_ns) / SECOND_NS
    }

    fn begin_second(&self, now_ns: u64) {
        let pace = match self.clip.is_steady {
            true => 1000,
            false => 950 + self.random.borrow_mut().below(301),
        };
        self.decoding.set(Decoding {
            second: self.second_of(now_ns),
            pace,
            ..Decoding::default()
        });
        self.begin_frame(0);
    }

    fn begin_frame(&self, done: u64) {
        let mut decoding = self.decoding.get();
        let pace = match self.clip.is_steady {
            true => 1000,
            false => 500 + self.random.borrow_mut().below(1001),
        };
        let cost_ns = self.clip.frame_ns * decoding.pace / 1000 * pace / 1000;
        decoding.done = done;
        decoding.pieces = (cost_ns + self.clip.piece_ns / 2) / self.clip.piece_ns;
        decoding.pieces = decoding.pieces.max(1);
        self.decoding.set(decoding);
    }

    fn virtual_time(&self) -> u64 {
        let decoding = self.decoding.get();
        decoding.second * FRAMES_MAX + decoding.done
    }

    /// Keeps the CPU for longer than allowed, at times.
    fn delay(&self) {
        let mut random = self.random.borrow_mut();
        if random.below(DELAY_ONCE_IN) == 0 {
            let delay_ns = random.below(DELAY_NS_MAX);
            drop(random);
            self.work.spend(delay_ns);
        }
    }
}
