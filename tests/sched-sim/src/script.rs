//! Behaviours of threads: hogs, sleepers, the event loop of Coop §2, and those who misbehave.

use crate::policy::NEVER;
use crate::thread::{Action, Figures, Script, View};

/// A small generator of chance (xorshift64*), so that a seed means the same run for ever.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.number() >> 11) % (high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }
}

/// Computes for ever.
#[derive(Clone, Debug)]
pub struct Hog;

impl Script for Hog {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        Action::Run(1_000_000_000)
    }
}

/// Computes and sleeps in turn, with times by chance, and may raise events; ends in the end.
#[derive(Clone, Debug)]
pub struct Mixed {
    pub chance: Chance,
    /// The longest it computes and sleeps at a time; 0: it never sleeps.
    pub run_ns: u64,
    pub sleep_ns: u64,
    /// Threads that it may raise events for: those with a smaller number.
    pub threads: u64,
    /// It ends once in so many rounds; 0: never.
    pub ends: u64,
    pub runs: bool,
}

impl Script for Mixed {
    fn next(&mut self, view: &View, _: &mut Figures) -> Action {
        self.runs = !self.runs;
        if self.ends > 0 && self.chance.one_in(self.ends) {
            return Action::Exit;
        }
        if self.threads > 0 && self.chance.one_in(8) {
            self.runs = !self.runs;
            return Action::Raise {
                thread: self.chance.between(0, self.threads - 1) as usize,
                deadline_ns: view.now + self.chance.between(0, 10_000_000),
            };
        }
        if self.runs || self.sleep_ns == 0 {
            Action::Run(self.chance.between(1, self.run_ns))
        } else {
            Action::Sleep(self.chance.between(0, self.sleep_ns))
        }
    }
}

/// The event loop of Coop §2.1 with an adaptive player's events (Figure 3): a timer per frame, and
/// best-effort events, as many as it can, of which some make a frame.
#[derive(Clone, Debug)]
pub struct Player {
    pub chance: Chance,
    /// Between two releases of its timer: from, to.
    pub period_ns: (u64, u64),
    /// What a timer event takes.
    pub timer_ns: u64,
    /// What a best-effort event takes at most.
    pub chunk_ns: u64,
    /// What a frame takes: from, to.
    pub frame_ns: (u64, u64),
    /// Once in so many yields it delays for up to 10 ms (Coop §5.5); 0: never.
    pub delays: u64,
    release_ns: u64,
    frame_left_ns: u64,
    running_chunk_ns: u64,
    polled: bool,
}

impl Player {
    /// A player whose first frame is due at once.
    pub fn new(seed: u64, frame_ns: (u64, u64)) -> Self {
        Self {
            chance: Chance::new(seed),
            period_ns: (25_000_000, 35_000_000),
            timer_ns: 50_000,
            chunk_ns: 500_000,
            frame_ns,
            delays: 0,
            release_ns: 0,
            frame_left_ns: 0,
            running_chunk_ns: 0,
            polled: false,
        }
    }

    fn poll(&mut self, importance: u64) -> Action {
        self.polled = true;
        Action::Poll {
            release_ns: self.release_ns,
            importance,
        }
    }
}

impl Script for Player {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        if self.release_ns == 0 {
            self.release_ns = view.now + self.chance.between(1, self.period_ns.1);
        }
        // the end of the last best-effort event
        self.frame_left_ns = self.frame_left_ns.saturating_sub(self.running_chunk_ns);
        if self.running_chunk_ns > 0 && self.frame_left_ns == 0 {
            figures.frames += 1;
        }
        self.running_chunk_ns = 0;
        let fresh = std::mem::take(&mut self.polled);
        if self.release_ns <= view.now {
            figures.tardiness_ns.push(view.now - self.release_ns);
            self.release_ns += self.chance.between(self.period_ns.0, self.period_ns.1);
            self.release_ns = self.release_ns.max(view.now + 1);
            self.polled = fresh;
            return Action::Run(self.timer_ns);
        }
        let until = view.slice_end_ns.min(view.next_release_ns);
        if view.now >= until {
            if self.delays > 0 && self.chance.one_in(self.delays) {
                self.polled = fresh;
                return Action::Run(self.chance.between(1, 10_000_000));
            }
            if !fresh || view.now > until {
                return self.poll(figures.frames);
            }
        }
        // a demoted thread never sees the end of its slice: it is preempted there
        if !view.cooperative && !fresh {
            return self.poll(figures.frames);
        }
        if self.frame_left_ns == 0 {
            self.frame_left_ns = self.chance.between(self.frame_ns.0, self.frame_ns.1);
        }
        self.running_chunk_ns = self.chunk_ns.min(self.frame_left_ns);
        Action::Run(self.running_chunk_ns)
    }
}

/// A video player of ECalls-05 §5.4: it sleeps until a frame's time, decodes it, and shows it when
/// the next one's comes. A frame that it cannot finish by then it gives up, or leaves out.
#[derive(Clone, Debug)]
pub struct Viewer {
    period_ns: u64,
    frame_ns: u64,
    due_ns: u64,
    left_ns: u64,
}

/// What it decodes at a time.
const SLICE_OF_FRAME_NS: u64 = 100_000;

impl Viewer {
    /// A player of such frames, the first of which is due at this time.
    pub fn new(period_ns: u64, frame_ns: u64, first_ns: u64) -> Self {
        Self {
            period_ns,
            frame_ns,
            due_ns: first_ns,
            left_ns: 0,
        }
    }

    /// The first frame after this one that it can finish, if nobody else wants the CPU.
    fn go_on(&mut self, now: u64) {
        self.left_ns = 0;
        self.due_ns += self.period_ns;
        while now + self.frame_ns > self.due_ns + self.period_ns {
            self.due_ns += self.period_ns;
        }
    }
}

impl Script for Viewer {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        if self.left_ns > 0 {
            self.left_ns -= SLICE_OF_FRAME_NS.min(self.left_ns);
            let is_over = view.now > self.due_ns + self.period_ns;
            figures.frames += u64::from(self.left_ns == 0 && !is_over);
            if self.left_ns == 0 || is_over {
                self.go_on(view.now);
            }
        }
        if view.now < self.due_ns {
            return Action::Sleep(self.due_ns - view.now);
        }
        if self.left_ns == 0 {
            figures.tardiness_ns.push(view.now - self.due_ns);
            self.left_ns = self.frame_ns;
        }
        Action::Run(SLICE_OF_FRAME_NS.min(self.left_ns))
    }
}

/// Sleeps until its next release by polls, like a video player that has no other work; with chance
/// it breaks each rule there is.
#[derive(Clone, Debug)]
pub struct Liar {
    pub chance: Chance,
}

impl Script for Liar {
    fn next(&mut self, view: &View, _: &mut Figures) -> Action {
        let soon = view.now + self.chance.between(0, 5_000_000);
        match self.chance.between(0, 9) {
            0 => Action::Sleep(self.chance.between(0, 5_000_000)),
            1..=4 => Action::Run(self.chance.between(1, 5_000_000)),
            5 => Action::Poll {
                release_ns: 0,
                importance: 0,
            },
            6 => Action::Poll {
                release_ns: view.now,
                importance: self.chance.number(),
            },
            7 => Action::Poll {
                release_ns: soon,
                importance: self.chance.number(),
            },
            _ => Action::Poll {
                release_ns: soon.max(view.now + 1),
                importance: NEVER,
            },
        }
    }
}
