//! Runs the threads of a program beside hogs, all of them where the kernel puts them.

use std::num::NonZero;
use std::thread::{self, ScopedJoinHandle};

use ecalls::now_ns;
use hdrhistogram::Histogram;

use crate::bench::sched::histogram;
use crate::bench::sched::work::{Span, Work, hog};
use crate::exit::{Code, Failure};

const SECOND_NS: u64 = 1_000_000_000;
/// What comes first is not counted, ns: processes begin.
const SETTLE_NS: u64 = 500_000_000;

/// What a thread did in its span.
pub(super) struct Seen {
    pub(super) done: u64,
    /// ns.
    pub(super) waits: Histogram<u64>,
    /// What each thread did, of those of a program.
    pub(super) each: Vec<u64>,
}

/// A thread of a program.
pub(super) type Body = Box<dyn FnOnce(Span) -> Result<Seen, Failure> + Send>;

/// Makes the threads of a program. Each has to end after its span, whoever ends first.
pub(super) type Make = fn(Work) -> Result<Vec<Body>, Failure>;

impl Seen {
    /// Nothing yet.
    pub(super) fn new() -> Seen {
        Seen {
            done: 0,
            waits: histogram(),
            each: Vec::new(),
        }
    }

    /// So often, without waiting.
    pub(super) fn done(done: u64) -> Seen {
        Seen {
            done,
            ..Seen::new()
        }
    }

    /// Counts what was finished now, if that is within the span. False: the span is over.
    pub(super) fn count(&mut self, span: Span) -> bool {
        let now_ns = now_ns();
        self.done += u64::from((span.from_ns..span.end_ns).contains(&now_ns));
        now_ns < span.end_ns
    }

    /// The same of what waited since then.
    pub(super) fn waited(&mut self, span: Span, since_ns: u64) -> bool {
        let now_ns = now_ns();
        if (span.from_ns..span.end_ns).contains(&now_ns) {
            self.waits
                .saturating_record(now_ns.saturating_sub(since_ns));
        }
        now_ns < span.end_ns
    }

    fn add(&mut self, other: &Seen) {
        self.done += other.done;
        self.each.push(other.done);
        // Both have the same bounds.
        let _ = self.waits.add(&other.waits);
    }
}

/// How many CPUs a program may use.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs a program for so long. What its threads did together.
pub(super) fn run(make: Make, hogs: usize, work: Work, seconds: u64) -> Result<Seen, Failure> {
    let bodies = make(work)?;
    let begin_ns = now_ns();
    let from_ns = begin_ns + SETTLE_NS;
    let span = Span {
        begin_ns,
        from_ns,
        end_ns: from_ns + seconds * SECOND_NS,
    };
    thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(move || hog(work, span));
        }
        let threads: Vec<_> = bodies
            .into_iter()
            .map(|body| scope.spawn(move || body(span)))
            .collect();
        // All of them end before anything is said of one.
        let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        let mut seen = Seen::new();
        for one in ended {
            let failed = |_| Failure::new(Code::Failed, "a thread of a program ended by a panic");
            seen.add(&one.map_err(failed)??);
        }
        Ok(seen)
    })
}
