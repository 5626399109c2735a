//! From the scheduler's records to a time line for Perfetto: thread switches and wake-ups in the
//! form of the kernel's own tracer, so that each CPU and each thread has a track; releases,
//! deadlines and demotions on the tracks of their threads; events on a track per service.
//!
//! This file needs no kernel: records in, messages out. The records' times are of CLOCK_MONOTONIC,
//! the trace's of CLOCK_BOOTTIME, which is Perfetto's default.

use std::collections::{BTreeMap, BTreeSet};

use ecalls_abi::sched::{
    SchedNote, TRACE_AHEAD, TRACE_CHOSEN, TRACE_DEMOTED, TRACE_EVENT, TRACE_OVERRAN, TRACE_POLL,
    TRACE_RELEASE, TRACE_SLEPT, TRACE_SWITCH, TRACE_WAKE, TRACE_WINDOW, WHY_EVENT, WHY_RELEASE,
    WHY_WINDOW,
};

use super::super::top::printable;
use super::perfetto::{
    DebugAnnotation, FtraceEvent, FtraceEventBundle, INSTANT, Process, ProcessTree, SLICE_BEGIN,
    SLICE_END, SchedSwitch, SchedWaking, Thread, ThreadDescriptor, TracePacket, TrackDescriptor,
    TrackEvent,
};
use super::user;
use crate::threads::turns::Turns;

/// The largest number of one CPU's events in a packet.
const BUNDLE: usize = 512;
/// All packets other than those of thread switches have this sequence number.
pub(super) const SEQUENCE: u32 = 1;
/// The track numbers of services lie above those of threads.
const SERVICES: u64 = 1 << 40;
/// The track for lost records.
const LOST: u64 = 1 << 41;
/// The kernel tracer's states of a preempted thread and of an idle one.
const PREEMPTED: i64 = 0x100;
const PARKED_IDLE: i64 = 0x80;
/// The kernel's TASK_IDLE, and the mask of the states that its tracer reports.
const TASK_IDLE: u64 = 0x402;
const TASK_REPORT: u64 = 0x7f;

/// Names and user-level threads, which the records lack.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names of services, by index.
    pub(super) services: BTreeMap<u32, String>,
    /// Names of processes.
    pub(super) processes: BTreeMap<u32, String>,
    pub(super) user: Turns,
}

/// The interval of the trace, and its clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// The difference between CLOCK_BOOTTIME and CLOCK_MONOTONIC.
    pub(super) sleep_ns: u64,
}

impl Times {
    fn have(&self, at_ns: u64) -> bool {
        (self.begin_ns..=self.end_ns).contains(&at_ns)
    }
}

/// An interval in which records were lost, and their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) notes: u64,
}

/// The packets for records in the order of their times, and for gaps between them.
pub(super) fn packets(
    notes: &[SchedNote],
    gaps: &[Gap],
    names: &Names,
    times: Times,
) -> Vec<TracePacket> {
    let threads = threads(notes);
    let mut tracks = Tracks {
        times,
        items: Vec::new(),
        pending: BTreeMap::new(),
        deadlines: BTreeSet::new(),
    };
    for note in notes {
        tracks.add(note);
    }
    for run in user::runs(notes, &names.user.turns, times.end_ns) {
        tracks.run(&run);
    }
    for gap in gaps {
        tracks.lost(gap);
    }
    let mut packets = vec![tree(&threads, names, times)];
    packets.extend(descriptors(notes, &threads, names));
    packets.extend(user::descriptors(&names.user.threads));
    packets.extend((!gaps.is_empty()).then(lost_track));
    packets.extend(bundles(notes, &threads, times));
    packets.extend(tracks.packets());
    packets
}

/// Each thread's process and latest name.
type Threads = BTreeMap<u32, (u32, String)>;

fn threads(notes: &[SchedNote]) -> Threads {
    let mut threads = Threads::new();
    for note in notes.iter().filter(|note| note.what != TRACE_EVENT) {
        threads.insert(note.tid, (note.pid, printable(&note.comm)));
    }
    threads
}

fn id(number: u32) -> Option<i32> {
    i32::try_from(number).ok()
}

fn tree(threads: &Threads, names: &Names, times: Times) -> TracePacket {
    let mut tree = ProcessTree::default();
    let pids: BTreeSet<u32> = threads.values().map(|(pid, _)| *pid).collect();
    for pid in pids.into_iter().filter(|pid| *pid != 0) {
        let own = || threads.get(&pid).map(|(_, name)| name.clone());
        tree.processes.push(Process {
            pid: id(pid),
            cmdline: names
                .processes
                .get(&pid)
                .cloned()
                .or_else(own)
                .into_iter()
                .collect(),
        });
    }
    for (tid, (pid, name)) in threads.iter().filter(|(tid, _)| **tid != 0) {
        tree.threads.push(Thread {
            tid: id(*tid),
            tgid: id(*pid),
            name: Some(name.clone()),
        });
    }
    TracePacket {
        process_tree: Some(tree),
        timestamp: Some(times.begin_ns + times.sleep_ns),
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..TracePacket::default()
    }
}

/// The tracks of threads that polled, and of services that raised events.
fn descriptors(notes: &[SchedNote], threads: &Threads, names: &Names) -> Vec<TracePacket> {
    let own = |note: &&SchedNote| !matches!(note.what, TRACE_SWITCH | TRACE_WAKE);
    let mut tracks: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
    for note in notes.iter().filter(own) {
        let uuid = track_of(note);
        tracks.entry(uuid).or_insert_with(|| {
            let mut track = TrackDescriptor {
                uuid: Some(uuid),
                ..TrackDescriptor::default()
            };
            if note.what == TRACE_EVENT {
                let known = names.services.get(&note.other);
                let name = known.map_or_else(|| note.other.to_string(), Clone::clone);
                track.name = Some(format!("events of {name}"));
            } else {
                track.thread = Some(ThreadDescriptor {
                    pid: id(note.pid),
                    tid: Some(i64::from(note.tid)),
                    thread_name: threads.get(&note.tid).map(|(_, name)| name.clone()),
                });
            }
            track
        });
    }
    tracks.into_values().map(described).collect()
}

fn lost_track() -> TracePacket {
    described(TrackDescriptor {
        uuid: Some(LOST),
        name: Some("lost notes".to_owned()),
        ..TrackDescriptor::default()
    })
}

pub(super) fn described(track: TrackDescriptor) -> TracePacket {
    TracePacket {
        track_descriptor: Some(track),
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..TracePacket::default()
    }
}

fn track_of(note: &SchedNote) -> u64 {
    match note.what {
        TRACE_EVENT => SERVICES + u64::from(note.other),
        _ => u64::from(note.tid),
    }
}

/// Switches and wake-ups per CPU.
fn bundles(notes: &[SchedNote], threads: &Threads, times: Times) -> Vec<TracePacket> {
    let mut cpus: BTreeMap<u32, Vec<FtraceEvent>> = BTreeMap::new();
    for note in notes {
        let mut event = match note.what {
            TRACE_SWITCH => switch(note, threads),
            TRACE_WAKE => wake(note),
            _ => continue,
        };
        event.timestamp = Some(note.at_ns + times.sleep_ns);
        cpus.entry(note.cpu).or_default().push(event);
    }
    let packet = |cpu: u32, events: &[FtraceEvent]| TracePacket {
        ftrace_events: Some(FtraceEventBundle {
            cpu: Some(cpu),
            event: events.to_vec(),
        }),
        ..TracePacket::default()
    };
    let of_cpu = |(cpu, events): (&u32, &Vec<FtraceEvent>)| -> Vec<TracePacket> {
        let chunks = events.chunks(BUNDLE);
        chunks.map(|chunk| packet(*cpu, chunk)).collect()
    };
    cpus.iter().flat_map(of_cpu).collect()
}

fn switch(note: &SchedNote, threads: &Threads) -> FtraceEvent {
    let prio = |bits: u64| i32::try_from(bits & 0xffff_ffff).ok();
    let former = threads.get(&note.other).map(|(_, name)| name.clone());
    FtraceEvent {
        pid: Some(note.other),
        sched_switch: Some(SchedSwitch {
            prev_comm: former,
            prev_pid: id(note.other),
            prev_prio: prio(note.more >> 32),
            prev_state: Some(state(note.value)),
            next_comm: Some(printable(&note.comm)),
            next_pid: id(note.tid),
            next_prio: prio(note.more),
        }),
        ..FtraceEvent::default()
    }
}

/// The previous thread's state in the form of the kernel's tracer.
fn state(value: u64) -> i64 {
    if value >> 32 != 0 {
        return PREEMPTED;
    }
    if value & TASK_IDLE == TASK_IDLE {
        return PARKED_IDLE;
    }
    i64::try_from(value & TASK_REPORT).unwrap_or(0)
}

fn wake(note: &SchedNote) -> FtraceEvent {
    FtraceEvent {
        pid: Some(note.other),
        sched_waking: Some(SchedWaking {
            comm: Some(printable(&note.comm)),
            pid: id(note.tid),
            prio: i32::try_from(note.more).ok(),
            success: Some(1),
            target_cpu: id(note.which),
        }),
        ..FtraceEvent::default()
    }
}

/// The items of all tracks.
struct Tracks {
    times: Times,
    items: Vec<(u64, TrackEvent)>,
    /// Published release times that have not been reached yet.
    pending: BTreeMap<u64, u64>,
    /// Known ends of periods that lie in the future, with their threads.
    deadlines: BTreeSet<(u64, u64)>,
}

impl Tracks {
    fn add(&mut self, note: &SchedNote) {
        let (track, at_ns) = (track_of(note), note.at_ns);
        match note.what {
            TRACE_POLL => self.poll(track, note),
            TRACE_RELEASE => self.late(track, note),
            TRACE_DEMOTED => {
                let rule = match note.which {
                    TRACE_OVERRAN => "demoted: overran",
                    TRACE_SLEPT => "demoted: slept",
                    TRACE_AHEAD => "demoted: ahead",
                    _ => "demoted",
                };
                self.instant(track, at_ns, "scheduler", rule);
            }
            TRACE_CHOSEN => {
                let why = match note.which {
                    WHY_RELEASE => "chosen by release",
                    WHY_WINDOW => "chosen by window",
                    WHY_EVENT => "chosen by event",
                    _ => "chosen",
                };
                self.instant(track, at_ns, "scheduler", why);
            }
            TRACE_WINDOW if self.deadlines.insert((track, note.value)) => {
                self.instant(track, note.value, "deadline", "end of period");
            }
            TRACE_EVENT => self.event(track, note),
            _ => {}
        }
    }

    fn instant(&mut self, track: u64, at_ns: u64, category: &str, name: &str) {
        self.push(at_ns, INSTANT, track, category, name);
    }

    /// Items outside of the trace's interval are omitted.
    fn push(&mut self, at_ns: u64, kind: i32, track: u64, category: &str, name: &str) {
        if !self.times.have(at_ns) {
            return;
        }
        let event = TrackEvent {
            r#type: Some(kind),
            track_uuid: Some(track),
            categories: vec![category.to_owned()],
            name: Some(name.to_owned()),
            ..TrackEvent::default()
        };
        self.items.push((at_ns, event));
    }

    /// A release time that is reached before the thread's next poll is shown; an earlier poll has
    /// withdrawn it.
    fn poll(&mut self, track: u64, note: &SchedNote) {
        self.released(track, note.at_ns);
        self.instant(track, note.at_ns, "scheduler", "poll");
        if note.value > note.at_ns {
            self.pending.insert(track, note.value);
        }
    }

    fn released(&mut self, track: u64, until_ns: u64) {
        if let Some(at_ns) = self.pending.remove(&track)
            && at_ns <= until_ns
        {
            self.instant(track, at_ns, "release", "release");
        }
    }

    /// Shows the time from the release to the CPU.
    fn late(&mut self, track: u64, note: &SchedNote) {
        self.released(track, note.at_ns);
        if !self.times.have(note.value) || note.value > note.at_ns {
            return;
        }
        self.push(note.value, SLICE_BEGIN, track, "release", "late");
        if let Some((_, event)) = self.items.last_mut() {
            event
                .debug_annotations
                .push(number("late_ns", note.at_ns - note.value));
        }
        self.push(note.at_ns, SLICE_END, track, "release", "late");
    }

    /// Shows an event as two instants, raised and delivered, with an arrow.
    fn event(&mut self, track: u64, note: &SchedNote) {
        for (at_ns, name) in [(note.value, "raised"), (note.at_ns, "delivered")] {
            let had = self.items.len();
            self.instant(track, at_ns, "event", name);
            if let Some((_, event)) = self.items.get_mut(had) {
                event.flow_ids.push(note.more);
                event.debug_annotations = vec![
                    number("kind", note.which.into()),
                    number("pid", note.pid.into()),
                    number("tid", note.tid.into()),
                ];
            }
        }
    }

    /// Shows that a user-level thread runs.
    fn run(&mut self, run: &user::Run) {
        // What began before the trace is shown from there on.
        let from_ns = run.from_ns.max(self.times.begin_ns);
        if run.to_ns < from_ns || run.to_ns > self.times.end_ns {
            return;
        }
        let name = run
            .cpu
            .map_or("runs".to_owned(), |cpu| format!("CPU {cpu}"));
        self.push(from_ns, SLICE_BEGIN, run.track, "thread", &name);
        if let Some((_, event)) = self.items.last_mut() {
            event.debug_annotations.push(number("tid", run.tid.into()));
        }
        self.push(run.to_ns, SLICE_END, run.track, "thread", &name);
    }

    fn lost(&mut self, gap: &Gap) {
        let (from_ns, to_ns) = (
            gap.from_ns.max(self.times.begin_ns),
            gap.to_ns.min(self.times.end_ns),
        );
        if from_ns > to_ns {
            return;
        }
        self.push(from_ns, SLICE_BEGIN, LOST, "trace", "lost");
        if let Some((_, event)) = self.items.last_mut() {
            event.debug_annotations.push(number("notes", gap.notes));
        }
        self.push(to_ns, SLICE_END, LOST, "trace", "lost");
    }

    fn packets(mut self) -> Vec<TracePacket> {
        let left: Vec<u64> = self.pending.keys().copied().collect();
        for track in left {
            self.released(track, self.times.end_ns);
        }
        // The sort is stable: items of equal times keep their order, so a slice begins before it
        // ends.
        self.items.sort_by_key(|(at_ns, _)| *at_ns);
        let times = self.times;
        let packet = |(at_ns, event): (u64, TrackEvent)| TracePacket {
            timestamp: Some(at_ns + times.sleep_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            ..TracePacket::default()
        };
        self.items.into_iter().map(packet).collect()
    }
}

fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation {
        uint_value: Some(value),
        name: Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests;
