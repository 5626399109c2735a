//! The kernel's statistics of threads under any scheduler: `schedstat` in /proc, with the time on a
//! CPU, the time runnable without one, and the number of turns.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The number of descendants of a process that are examined.
const PROCESSES_MAX: usize = 4096;

/// The statistics of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Had {
    pub(crate) run_ns: u64,
    /// Time runnable without a CPU.
    pub(crate) wait_ns: u64,
    /// Number of times that the thread received a CPU.
    pub(crate) turns: u64,
}

impl Had {
    fn read(folder: &Path) -> Option<Had> {
        Had::parse(&fs::read_to_string(folder.join("schedstat")).ok()?)
    }

    fn parse(text: &str) -> Option<Had> {
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        Some(Had {
            run_ns: numbers.next()??,
            wait_ns: numbers.next()??,
            turns: numbers.next()??,
        })
    }

    /// The difference to an earlier sample.
    pub(crate) fn since(self, before: Had) -> Had {
        Had {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            turns: self.turns.saturating_sub(before.turns),
        }
    }

    /// Adds another thread's statistics.
    pub(crate) fn add(&mut self, other: Had) {
        self.run_ns += other.run_ns;
        self.wait_ns += other.wait_ns;
        self.turns += other.turns;
    }

    /// Average time that the thread was runnable before a turn.
    pub(crate) fn wait_per_turn_ns(self) -> u64 {
        self.wait_ns.checked_div(self.turns).unwrap_or(0)
    }

    /// CPU time as a part of the demand; 1: the thread never waited.
    pub(crate) fn got(self) -> f64 {
        match self.run_ns + self.wait_ns {
            0 => 1.0,
            wanted => self.run_ns as f64 / wanted as f64,
        }
    }
}

/// Threads by id.
pub(crate) type Threads = HashMap<u32, Had>;

/// Adds the threads of a process as they are now; other threads in the map stay.
pub(crate) fn look(pid: u32, threads: &mut Threads) {
    for tid in numbers(Path::new(&format!("/proc/{pid}/task"))) {
        let folder = format!("/proc/{pid}/task/{tid}");
        if let Some(had) = Had::read(Path::new(&folder)) {
            threads.insert(tid, had);
        }
    }
}

/// Adds the threads of a process and of all its descendants.
pub(crate) fn look_below(pid: u32, threads: &mut Threads) {
    let mut left = vec![pid];
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else {
            return;
        };
        look(pid, threads);
        for tid in numbers(Path::new(&format!("/proc/{pid}/task"))) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
            let children = children.unwrap_or_default();
            left.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
}

/// All threads of the machine, each with its process.
pub(crate) fn look_at_all() -> HashMap<u32, (u32, Had)> {
    let mut all = HashMap::new();
    for pid in numbers(Path::new("/proc")) {
        let mut threads = Threads::new();
        look(pid, &mut threads);
        all.extend(threads.into_iter().map(|(tid, had)| (tid, (pid, had))));
    }
    all
}

/// The names in a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_has_had_time_and_turns() {
        let mut threads = Threads::new();
        look(std::process::id(), &mut threads);
        assert!(threads.values().any(|had| had.run_ns > 0 && had.turns > 0));
    }

    #[test]
    fn what_it_got_is_a_part_of_what_it_wanted() {
        let had = Had::parse("300 100 4\n").expect("three numbers");
        assert_eq!(had.wait_per_turn_ns(), 25);
        assert!((had.got() - 0.75).abs() < 1e-9);
        assert!((Had::default().got() - 1.0).abs() < 1e-9);
        assert_eq!(Had::parse("300 100"), None);
    }
}
