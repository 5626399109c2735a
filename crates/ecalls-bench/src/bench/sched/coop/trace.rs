//! How late threads run that timers wake, by the kernel's own events: from `sched_waking` in an
//! interrupt until `sched_switch` to that thread. Nothing is added to the program or the scheduler,
//! so the figures of all schedulers are of one kind. Timers alone wake threads in interrupts here:
//! the programs have no other device.
//!
//! The events are read as text from an instance of tracefs of this process's own, which its end
//! removes. Needs root.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use hdrhistogram::Histogram;

use crate::bench::sched::histogram;
use crate::exit::{Code, Failure};

const TRACEFS: &str = "/sys/kernel/tracing/instances";
const EVENTS: [&str; 2] = ["events/sched/sched_waking", "events/sched/sched_switch"];
/// Of each CPU; some thousand events a second need less than 1 MB.
const BUFFER_KB: &str = "16384";

pub(super) struct Trace(PathBuf);

impl Trace {
    pub(super) fn new() -> Result<Trace, Failure> {
        let folder = format!("{TRACEFS}/ecalls-bench-{}", std::process::id());
        fs::create_dir_all(&folder).map_err(|error| {
            let why = format!("{folder}: {error} (the rows coop_* need tracefs, and root)");
            Failure::new(Code::Unsupported, why)
        })?;
        let trace = Trace(PathBuf::from(folder));
        trace.set("tracing_on", "0")?;
        trace.set("trace_clock", "mono")?;
        trace.set("buffer_size_kb", BUFFER_KB)?;
        for event in EVENTS {
            trace.set(&format!("{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        fs::write(&path, value).map_err(|error| failed(&path, &error))
    }

    pub(super) fn begin(&self) -> Result<(), Failure> {
        self.set("tracing_on", "1")
    }

    /// The lateness of these threads since the beginning, ns.
    pub(super) fn end(&self, threads: &[u32]) -> Result<Histogram<u64>, Failure> {
        self.set("tracing_on", "0")?;
        let path = self.0.join("trace");
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        Ok(lateness(&text, threads))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for event in EVENTS {
            let _ = self.set(&format!("{event}/enable"), "0");
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn failed(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("{}: {error}", path.display()))
}

/// An event of the text.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Waking { thread: u32, by_interrupt: bool },
    Switch { from: u32, to: u32 },
}

/// A line such as `hog-12 [001] d.h2. 43.691307: sched_waking: comm=a pid=7 prio=120 ...`, and its
/// time in us.
fn parse(line: &str) -> Option<(u64, Event)> {
    let (head, name, body) = EVENTS.iter().find_map(|event| {
        let name = event.rsplit('/').next()?;
        let (head, body) = line.split_once(&format!(": {name}: "))?;
        Some((head, name, body))
    })?;
    let mut words = head.split_whitespace().rev();
    let (seconds, micros) = words.next()?.split_once('.')?;
    let us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    // The name of a program may hold anything: its last field counts.
    let number = |key: &str| {
        let (_, rest) = body.rsplit_once(key)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let event = match name {
        "sched_waking" => Event::Waking {
            thread: number(" pid=")?,
            by_interrupt: words.next()?.contains(['h', 'H']),
        },
        _ => Event::Switch {
            from: number(" prev_pid=")?,
            to: number(" next_pid=")?,
        },
    };
    Some((us, event))
}

fn lateness(text: &str, threads: &[u32]) -> Histogram<u64> {
    let mut woken: HashMap<u32, u64> = HashMap::new();
    let mut late = histogram();
    for (us, event) in text.lines().filter_map(parse) {
        match event {
            Event::Waking {
                thread,
                by_interrupt: true,
            } if threads.contains(&thread) => {
                woken.insert(thread, us);
            }
            Event::Waking { .. } => {}
            Event::Switch { from, to } => {
                // One that was woken before it slept went on.
                woken.remove(&from);
                if let Some(since) = woken.remove(&to) {
                    late.saturating_record((us - since) * 1000);
                }
            }
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# tracer: nop
   hog-140 [001] d.h2.  65.475842: sched_waking: comm=a pid=1 b pid=264 prio=120 target_cpu=001
   hog-140 [001] d..2.  65.475940: sched_switch: prev_comm=hog prev_pid=140 prev_prio=120 \
prev_state=R ==> next_comm=a pid=1 b next_pid=264 next_prio=120
   a-264   [001] d..2.  65.476000: sched_waking: comm=late pid=265 prio=120 target_cpu=001
   a-264   [001] d..2.  65.476472: sched_switch: prev_comm=a prev_pid=264 prev_prio=120 \
prev_state=S ==> next_comm=late next_pid=265 next_prio=120
   hog-140 [001] d.h2.  65.480000: sched_waking: comm=other pid=9 prio=120 target_cpu=001
   hog-140 [001] d..2.  65.480100: sched_switch: prev_comm=hog prev_pid=140 prev_prio=120 \
prev_state=R ==> next_comm=other next_pid=9 next_prio=120
";

    #[test]
    fn what_an_interrupt_wakes_is_late_until_it_runs() {
        let late = lateness(TEXT, &[264, 265]);
        assert_eq!((late.len(), late.max() / 1000), (1, 98));
    }

    #[test]
    fn a_thread_that_was_woken_before_it_slept_is_not_late() {
        let text = "\
 a-7 [000] d.h2. 1.000010: sched_waking: comm=a pid=7 prio=120 target_cpu=000
 a-7 [000] d..2. 1.000020: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 prev_state=R ==> \
next_comm=b next_pid=8 next_prio=120
 b-8 [000] d..2. 1.000900: sched_switch: prev_comm=b prev_pid=8 prev_prio=120 prev_state=S ==> \
next_comm=a next_pid=7 next_prio=120
";
        assert_eq!(lateness(text, &[7]).len(), 0);
    }
}
