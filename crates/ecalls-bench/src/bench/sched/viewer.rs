//! A video player of ECalls-05 §3 and §5.4: it decodes each frame at the frame's own time, and
//! shows it at the time of the next one, or never.
//!
//! Under our scheduler a frame is an event that was raised before with the frame's time as its
//! release time, the time of the next one as its deadline, and a request for the CPU; and the
//! player has the paper's window: one frame of five may be missed. Elsewhere the player sleeps
//! until that time, as the paper's players did without ECalls. A frame that is not decoded when its
//! time is over is aborted; one that could not be finished in time, even alone on the CPU, is
//! skipped. A player whose frames cost nothing is a plain sleeper.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ecalls::coop::SlotMemory;
use ecalls::{Channel, Ecalls, Raise, Service, Subscription, Window, now_ns};
use rustix::thread::set_current_timer_slack;

use super::player::{Clip, Played};
use super::track::Track;
use super::work::{Meter, Span, Work};
use crate::exit::{Code, Failure};

/// One of this number of periods may be missed.
const WINDOW: u16 = 5;
/// The service time of a window exceeds the frame's cost by this fraction. The windows of ten
/// players need 94.5 % of the CPU, and 5 % are reserved for other threads.
const ROOM: u64 = 20;
/// How long a player waits for the first event, on a busy machine, too.
const FIRST_EVENT: Duration = Duration::from_secs(20);
/// CPU time between two readings of the clock, ns: less than that difference.
const PIECE_NS: u64 = 100_000;

/// A player that is ready to begin.
pub(super) struct Viewer {
    clip: Clip,
    from_ns: u64,
    waits: Waits,
}

/// How a player waits for a frame's time.
enum Waits {
    Timed,
    ForEvents(Box<Events>),
}

/// The subscription that brings the player its events, and the resources that it needs.
struct Events {
    channel: Channel,
    service: Service,
    _subscription: Subscription,
    _slot: SlotMemory,
}

impl Viewer {
    /// Must be called in the player's own thread, which the scheduler then knows. The time of the
    /// first frame is `from_ns` after the beginning.
    pub(super) fn new(
        ecalls: Option<&Ecalls>,
        clip: Clip,
        from_ns: u64,
    ) -> Result<Viewer, Failure> {
        let waits = match ecalls {
            Some(ecalls) => Waits::ForEvents(Box::new(Events::new(ecalls, clip)?)),
            None => Waits::Timed,
        };
        if clip.frame_ns == 0 {
            // This player only sleeps. The kernel may delay its timer by the slack, which is not
            // the scheduler's doing; if it cannot be set, the delay is in the figures of every
            // scheduler.
            let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        }
        Ok(Viewer {
            clip,
            from_ns,
            waits,
        })
    }

    /// Plays until the span ends.
    pub(super) fn play(mut self, work: Work, span: Span) -> Result<Played, Failure> {
        let Clip {
            period_ns,
            frame_ns,
            ..
        } = self.clip;
        let meter = Meter::new();
        let (mut late, mut track) = (super::histogram(), Track::new(span));
        let mut at_start = None;
        let mut frames = 0;
        let mut due_ns = span.begin_ns + self.from_ns;
        while due_ns < span.end_ns {
            let next_ns = due_ns + period_ns;
            self.waits.wait(due_ns, next_ns)?;
            let begun_ns = now_ns();
            if begun_ns >= span.from_ns && at_start.is_none() {
                at_start = Some(meter.read());
            }
            let is_counted = due_ns >= span.from_ns;
            if is_counted {
                late.saturating_record(begun_ns.saturating_sub(due_ns));
            }
            let is_shown = begun_ns + frame_ns <= next_ns && decode(work, frame_ns, next_ns);
            let now_ns = now_ns();
            frames += u64::from(is_counted && is_shown);
            track.look(now_ns, frames);
            due_ns = next_ns;
            while due_ns + period_ns < now_ns + frame_ns {
                due_ns += period_ns;
            }
        }
        if late.is_empty() {
            let why = "a player has begun no frame in the time that counts";
            return Err(Failure::new(Code::Failed, why));
        }
        let now = meter.read();
        Ok(Played {
            late,
            frames,
            usage: now.since(at_start.unwrap_or(now)),
            track,
            was_answered: matches!(self.waits, Waits::ForEvents(_)),
        })
    }
}

/// Decodes a frame, or aborts it at its end. Returns whether it can be shown.
fn decode(work: Work, frame_ns: u64, end_ns: u64) -> bool {
    let mut left_ns = frame_ns;
    while left_ns > 0 && now_ns() < end_ns {
        let piece_ns = left_ns.min(PIECE_NS);
        work.spend(piece_ns);
        left_ns -= piece_ns;
    }
    left_ns == 0 && now_ns() <= end_ns
}

impl Waits {
    /// Waits for a frame's time; `next_ns` is that of the next one.
    fn wait(&mut self, due_ns: u64, next_ns: u64) -> Result<(), Failure> {
        match self {
            Waits::Timed => {
                std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
            }
            Waits::ForEvents(its) if now_ns() < due_ns => {
                let raise = Raise::new(&[]).at(Some(due_ns), Some(next_ns)).cpu();
                its.service.raise(&raise)?;
                // A lost or late event does not arrive: then the frame is over.
                let limit_ns = next_ns.saturating_sub(now_ns());
                its.channel.recv_timeout(Duration::from_nanos(limit_ns))?;
            }
            Waits::ForEvents(_) => {}
        }
        Ok(())
    }
}

impl Events {
    fn new(ecalls: &Ecalls, clip: Clip) -> Result<Events, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{}-{number}", std::process::id());
        let service = ecalls.register_service(&name, "u64 frame", "frame")?;
        let mut channel = ecalls.channel().open()?;
        let subscription = ecalls.subscribe(&name)?.memory(&channel).install()?;
        let slot = channel.caller().sink_slot(0, 0)?;
        let window = Window {
            period: Duration::from_nanos(clip.period_ns),
            service: Duration::from_nanos(clip.frame_ns + clip.frame_ns / ROOM),
            x: 1,
            y: WINDOW,
            conserving: true,
        };
        // The thread then runs without a window if it is refused; but the scheduler must answer.
        let _ = channel.caller().window(&slot, &window)?;
        // The first event loads what the others need. That can take longer than the measurement.
        service.raise(&Raise::new(&[]))?;
        channel.recv_timeout(FIRST_EVENT)?;
        Ok(Events {
            channel,
            service,
            _subscription: subscription,
            _slot: slot,
        })
    }
}
