//! User-level threads on the time line: the runtimes tell which of them each kernel thread
//! executes, and the scheduler's records when that has a CPU. A track of each shows both together.

use std::collections::{BTreeSet, HashMap};

use ecalls_abi::sched::{SchedNote, TRACE_SWITCH};

use super::perfetto::{ProcessDescriptor, TracePacket, TrackDescriptor};
use super::timeline::described;
use crate::threads::turns::{Turn, UserThread};

/// The track numbers of user-level threads, and of their processes, lie above all others.
const THREADS: u64 = 1 << 42;
const PROCESSES: u64 = 1 << 43;

/// A user-level thread was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) track: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// By this kernel thread.
    pub(super) tid: u32,
    /// `None`: it got the CPU before the trace began.
    pub(super) cpu: Option<u32>,
}

fn track(place: usize) -> u64 {
    THREADS + place as u64
}

/// A track for each thread, below its process's.
pub(super) fn descriptors(threads: &[UserThread]) -> Vec<TracePacket> {
    let pids: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
    let processes = pids.into_iter().map(|pid| TrackDescriptor {
        uuid: Some(PROCESSES + u64::from(pid)),
        process: Some(ProcessDescriptor {
            pid: i32::try_from(pid).ok(),
        }),
        ..TrackDescriptor::default()
    });
    let threads = threads.iter().enumerate();
    let threads = threads.map(|(place, thread)| TrackDescriptor {
        uuid: Some(track(place)),
        name: Some(title(thread)),
        parent_uuid: Some(PROCESSES + u64::from(thread.pid)),
        ..TrackDescriptor::default()
    });
    processes.chain(threads).map(described).collect()
}

fn title(thread: &UserThread) -> String {
    let number = thread.number;
    match &thread.name {
        Some(name) => format!("{name} (user-level thread {number})"),
        None => format!("user-level thread {number}"),
    }
}

/// A kernel thread that executes user-level ones.
#[derive(Debug, Default)]
struct Activation {
    /// It has a CPU, which is not always known.
    runs: bool,
    cpu: Option<u32>,
    /// The place of the thread that it executes.
    thread: Option<usize>,
    since_ns: u64,
}

impl Activation {
    /// What it did until now.
    fn until(&self, now_ns: u64, tid: u32) -> Option<Run> {
        let place = self
            .thread
            .filter(|_| self.runs && now_ns > self.since_ns)?;
        Some(Run {
            track: track(place),
            from_ns: self.since_ns,
            to_ns: now_ns,
            tid,
            cpu: self.cpu,
        })
    }
}

/// What happens to an activation, in the order in which it does at the same time.
enum Step<'a> {
    Switch(&'a SchedNote),
    Turn(&'a Turn),
}

/// When each thread was executed. The records are in the order of their times.
pub(super) fn runs(notes: &[SchedNote], turns: &[Turn], end_ns: u64) -> Vec<Run> {
    let mut activations: HashMap<u32, Activation> = HashMap::new();
    for turn in turns {
        activations.entry(turn.tid).or_default();
    }
    let switches = notes.iter().filter(|note| note.what == TRACE_SWITCH);
    let switches = switches.map(|note| (note.at_ns, Step::Switch(note)));
    let turns = turns.iter().map(|turn| (turn.at_ns, Step::Turn(turn)));
    let mut steps: Vec<(u64, Step<'_>)> = switches.chain(turns).collect();
    // It is stable: of one time the switches are first.
    steps.sort_by_key(|(at_ns, _)| *at_ns);
    let mut runs = Vec::new();
    for (at_ns, step) in steps {
        let mut change = |tid: u32, change: &dyn Fn(&mut Activation)| {
            if let Some(activation) = activations.get_mut(&tid) {
                runs.extend(activation.until(at_ns, tid));
                change(activation);
                activation.since_ns = at_ns;
            }
        };
        match step {
            Step::Switch(note) => {
                change(note.other, &|former| former.runs = false);
                change(note.tid, &|next| {
                    (next.runs, next.cpu) = (true, Some(note.cpu));
                });
            }
            // Who takes a turn runs, even if its switch was lost or before the trace.
            Step::Turn(turn) => change(turn.tid, &|activation| {
                activation.runs |= !turn.was_there;
                activation.thread = turn.thread;
            }),
        }
    }
    let left = activations.iter();
    runs.extend(left.filter_map(|(tid, activation)| activation.until(end_ns, *tid)));
    one_after_the_other(runs)
}

/// A thread runs once at a time: another processor may have taken it a moment before its activation
/// noted that it executes the next one.
fn one_after_the_other(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by_key(|run| (run.track, run.from_ns, run.tid));
    let mut last = (0, 0);
    for run in &mut runs {
        if run.track == last.0 {
            run.from_ns = run.from_ns.max(last.1);
        }
        last = (run.track, run.to_ns.max(run.from_ns));
    }
    runs.retain(|run| run.from_ns < run.to_ns);
    runs
}

#[cfg(test)]
mod tests {
    use ecalls_abi::zerocopy::FromZeros;

    use super::*;

    /// CPU 3 goes from one thread to another.
    fn switch(at_ns: u64, from: u32, to: u32) -> SchedNote {
        let mut note = SchedNote::new_zeroed();
        (note.what, note.at_ns, note.cpu) = (TRACE_SWITCH, at_ns, 3);
        (note.other, note.tid) = (from, to);
        note
    }

    fn turn(at_ns: u64, tid: u32, thread: Option<usize>) -> Turn {
        Turn {
            at_ns,
            tid,
            thread,
            was_there: false,
        }
    }

    fn shown(notes: &[SchedNote], turns: &[Turn]) -> Vec<(u64, u64, u64, u32, Option<u32>)> {
        let runs = runs(notes, turns, 100).into_iter();
        runs.map(|run| {
            (
                run.track - THREADS,
                run.from_ns,
                run.to_ns,
                run.tid,
                run.cpu,
            )
        })
        .collect()
    }

    #[test]
    fn a_thread_runs_while_its_activation_has_a_cpu() {
        let notes = [
            switch(10, 0, 7),
            switch(40, 7, 8),
            switch(60, 8, 7),
            switch(80, 7, 0),
        ];
        // Activation 7 goes from one thread to the other, is preempted, and becomes a spare; 8 is
        // no activation.
        let turns = [
            turn(12, 7, Some(0)),
            turn(20, 7, Some(1)),
            turn(70, 7, None),
        ];
        assert_eq!(
            shown(&notes, &turns),
            [
                (0, 12, 20, 7, Some(3)),
                (1, 20, 40, 7, Some(3)),
                (1, 60, 70, 7, Some(3)),
            ]
        );
    }

    #[test]
    fn a_thread_that_was_blocked_when_the_trace_began_runs_once_it_is_back() {
        let was_there = Turn {
            was_there: true,
            ..turn(5, 7, Some(0))
        };
        let notes = [switch(30, 0, 7), switch(50, 7, 0)];
        assert_eq!(shown(&notes, &[was_there]), [(0, 30, 50, 7, Some(3))]);
        // Whoever takes a turn runs, wherever.
        let turns = [turn(6, 7, Some(0))];
        assert_eq!(shown(&notes[1..], &turns), [(0, 6, 50, 7, None)]);
        assert_eq!(shown(&[], &turns), [(0, 6, 100, 7, None)]);
    }

    #[test]
    fn a_thread_that_another_processor_takes_runs_once_at_a_time() {
        let turns = [
            turn(10, 7, Some(0)),
            turn(20, 8, Some(0)),
            turn(22, 7, Some(1)),
        ];
        assert_eq!(
            shown(&[], &turns),
            [
                (0, 10, 22, 7, None),
                (0, 22, 100, 8, None),
                (1, 22, 100, 7, None)
            ]
        );
    }

    #[test]
    fn a_track_is_below_its_process_s_and_has_the_name() {
        let thread = |number, name: Option<&str>| UserThread {
            pid: 9,
            number,
            name: name.map(str::to_owned),
        };
        let threads = [thread(4, Some("parser")), thread(5, None)];
        let tracks = descriptors(&threads).into_iter();
        let tracks: Vec<_> = tracks
            .filter_map(|packet| packet.track_descriptor)
            .collect();
        let [process, parser, other] = &tracks[..] else {
            panic!("{tracks:?}");
        };
        assert_eq!(
            process.process.as_ref().map(ProcessDescriptor::pid),
            Some(9)
        );
        assert_eq!(parser.parent_uuid, process.uuid);
        assert_eq!(parser.name(), "parser (user-level thread 4)");
        assert_eq!(other.name(), "user-level thread 5");
    }
}
