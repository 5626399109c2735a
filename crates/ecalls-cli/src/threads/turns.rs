//! Which user-level thread each activation executes, of all runtimes, while `ecalls sched trace`
//! asks for it (abi/runtime.h).
//!
//! A runtime notes turns only while somebody wants them: until a time that looks extend, so that
//! it soon stops if this process is killed. All that it notes is its process's word: a turn counts
//! only for a kernel thread that the process has.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ecalls_abi::activation::{ACTIVATIONS_MAX, PROCESSORS_MAX};
use ecalls_abi::runtime::{RUNTIME_RUNS, RUNTIME_TURNS, Runtime, RuntimeProcessor, RuntimeTurn};
use ecalls_abi::zerocopy::{FromZeros, IntoBytes};

use super::look::{self, Task};

/// Turns are noted so long after a look.
const LIFE_NS: u64 = 2_000_000_000;
/// Runtimes that have begun are looked for so often, and names of threads read.
const SEARCH_NS: u64 = 1_000_000_000;
/// Runtimes, threads and turns that are kept.
const RUNTIMES_MAX: usize = 1024;
const THREADS_MAX: usize = 1 << 16;
const TURNS_MAX: usize = 2 << 20;
/// More than this cannot be lost by a processor between two looks.
const LOST_MAX: u64 = 1 << 32;

/// A kernel thread executes a user-level thread from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) at_ns: u64,
    /// As the caller sees it.
    pub(crate) tid: u32,
    /// Its place in [`Turns::threads`]; `None`: no thread.
    pub(crate) thread: Option<usize>,
    /// It was executing the thread already, perhaps without running.
    pub(crate) was_there: bool,
}

/// A user-level thread that had a turn.
#[derive(Clone, Debug)]
pub(crate) struct UserThread {
    pub(crate) pid: u32,
    /// Of its runtime.
    pub(crate) number: u32,
    pub(crate) name: Option<String>,
}

/// The turns of all runtimes.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By process and descriptor.
    runtimes: BTreeMap<(u32, u32), Traced>,
    searched_ns: u64,
    /// In no order.
    pub(crate) turns: Vec<Turn>,
    pub(crate) threads: Vec<UserThread>,
}

/// A runtime that notes turns.
#[derive(Debug)]
struct Traced {
    pid: u32,
    folder: PathBuf,
    file: File,
    processors: usize,
    /// Turns that were read, of each processor.
    read: Vec<u64>,
    tasks: HashMap<u32, Task>,
    /// Places of its threads in `Turns::threads`, by number.
    places: HashMap<u32, usize>,
}

impl Turns {
    /// Reads what was noted since the last look, and has more noted. Returns how many turns are
    /// lost: they were overwritten, or there was no room for them.
    pub(crate) fn look(&mut self, now_ns: u64) -> u64 {
        let mut lost = 0;
        let is_time = now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS;
        if is_time {
            self.searched_ns = now_ns;
            self.search(now_ns);
        }
        for traced in self.runtimes.values_mut() {
            let (new, overwritten) = traced.look(now_ns, is_time);
            lost += overwritten;
            for turn in new {
                match traced.keep(&turn, &mut self.threads) {
                    Some(turn) if self.turns.len() < TURNS_MAX => self.turns.push(turn),
                    Some(_) => lost += 1,
                    None => {}
                }
            }
            if is_time {
                traced.read_names(&mut self.threads);
            }
        }
        lost
    }

    /// Has no more noted.
    pub(crate) fn end(&mut self) {
        for traced in self.runtimes.values() {
            traced.want(0);
            traced.read_names(&mut self.threads);
        }
    }

    /// Finds runtimes that are not known yet, and what each of their activations executes.
    fn search(&mut self, now_ns: u64) {
        for pid in look::processes() {
            for (number, file) in look::files_of(pid).unwrap_or_default() {
                let key = (pid, number);
                if self.runtimes.contains_key(&key) || self.runtimes.len() == RUNTIMES_MAX {
                    continue;
                }
                let Some((mut traced, begun)) = Traced::new(pid, file, now_ns) else {
                    continue;
                };
                let kept = begun
                    .iter()
                    .filter_map(|turn| traced.keep(turn, &mut self.threads));
                self.turns.extend(kept);
                self.runtimes.insert(key, traced);
            }
        }
    }
}

/// Where a processor's words of traces are in the file.
fn words_at(processor: usize) -> u64 {
    let at = offset_of!(Runtime, processor) + processor * size_of::<RuntimeProcessor>();
    (at + offset_of!(RuntimeProcessor, trace_until_ns)) as u64
}

impl Traced {
    /// With what its activations execute now.
    fn new(pid: u32, file: File, now_ns: u64) -> Option<(Self, Vec<RuntimeTurn>)> {
        let runtime = look::read(&file)?;
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let processors = runtime.processors.min(PROCESSORS_MAX) as usize;
        let most = runtime.activations_max.min(ACTIVATIONS_MAX - 1) as usize;
        let numbered = runtime.activation.iter().skip(1).take(most);
        let busy = numbered.filter(|shown| shown.thread != 0 && shown.state == RUNTIME_RUNS);
        let begun = busy.map(|shown| RuntimeTurn {
            at_ns: now_ns,
            tid: shown.tid,
            thread: shown.thread,
        });
        let begun = begun.collect();
        let processor = runtime.processor.iter().take(processors);
        let traced = Self {
            pid,
            tasks: look::tasks(&folder).ok()?,
            folder,
            file,
            processors,
            read: processor.map(|processor| processor.turns).collect(),
            places: HashMap::new(),
        };
        Some((traced, begun))
    }

    /// Has turns noted until then. What cannot be written, for the process has ended say, is not.
    fn want(&self, until_ns: u64) {
        for processor in 0..self.processors {
            let _ = self
                .file
                .write_all_at(until_ns.as_bytes(), words_at(processor));
        }
    }

    /// The number of turns that a processor has noted.
    fn count(&self, processor: usize) -> Option<u64> {
        let mut words = [0u64; 2];
        let at = words_at(processor);
        self.file.read_exact_at(words.as_mut_bytes(), at).ok()?;
        Some(words[1])
    }

    /// The turns since the last look, and how many were overwritten since.
    fn look(&mut self, now_ns: u64, extends: bool) -> (Vec<RuntimeTurn>, u64) {
        if extends {
            self.want(now_ns + LIFE_NS);
        }
        let (mut new, mut lost) = (Vec::new(), 0);
        for processor in 0..self.processors {
            let Some(count) = self
                .count(processor)
                .filter(|count| *count != self.read[processor])
            else {
                continue;
            };
            let mut turns = vec![RuntimeTurn::new_zeroed(); RUNTIME_TURNS as usize];
            let at = size_of::<Runtime>() + processor * size_of_val(&turns[..]);
            let is_read = self
                .file
                .read_exact_at(turns.as_mut_bytes(), at as u64)
                .is_ok();
            // What was written meanwhile has perhaps been read in part.
            let Some(after) = self.count(processor).filter(|_| is_read) else {
                continue;
            };
            let first = after.saturating_sub(u64::from(RUNTIME_TURNS) - 1);
            let first = first.max(self.read[processor]);
            lost += (first - self.read[processor]).min(LOST_MAX);
            let place = |number: u64| usize::try_from(number % u64::from(RUNTIME_TURNS));
            new.extend((first..count).filter_map(|number| Some(turns[place(number).ok()?])));
            self.read[processor] = count.max(first);
        }
        (new, lost)
    }

    /// The turn as the caller sees its kernel thread; `None`: that is not the process's, or its
    /// thread one too many.
    fn keep(&mut self, turn: &RuntimeTurn, threads: &mut Vec<UserThread>) -> Option<Turn> {
        if !self.tasks.contains_key(&turn.tid) {
            self.tasks.extend(look::tasks(&self.folder).ok()?);
        }
        let tid = self.tasks.get(&turn.tid)?.tid;
        let thread = match turn.thread {
            0 => None,
            number => Some(self.place(number, threads)?),
        };
        Some(Turn {
            at_ns: turn.at_ns,
            tid,
            thread,
            was_there: false,
        })
    }

    fn place(&mut self, number: u32, threads: &mut Vec<UserThread>) -> Option<usize> {
        if let Some(place) = self.places.get(&number) {
            return Some(*place);
        }
        if threads.len() == THREADS_MAX {
            return None;
        }
        threads.push(UserThread {
            pid: self.pid,
            number,
            name: None,
        });
        self.places.insert(number, threads.len() - 1);
        Some(threads.len() - 1)
    }

    fn read_names(&self, threads: &mut [UserThread]) {
        let names = look::read(&self.file).map(|runtime| look::names(&runtime));
        for (number, name) in names.unwrap_or_default() {
            if let Some(place) = self.places.get(&number) {
                threads[*place].name = Some(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use ecalls::now_ns;
    use ecalls_threads::{KernelSide, Runtime as Threads, yield_now};

    use super::*;

    /// Those of this process's runtime with that many processors, which tells tests apart.
    fn own(turns: &mut Turns, processors: usize) -> &mut Traced {
        let own = std::process::id();
        let mut all = turns.runtimes.values_mut();
        let is_it = |traced: &Traced| traced.pid == own && traced.processors == processors;
        all.find(|traced| is_it(traced)).expect("it runs")
    }

    #[test]
    fn turns_are_read_once_until_nobody_wants_them() {
        let builder = Threads::builder().processors(3).kernel(KernelSide::Never);
        let runtime = builder.start().expect("a runtime");
        let rounds = |count: usize, name: &'static str| {
            let thread = runtime.spawn(move || {
                ecalls_threads::current().expect("a thread").set_name(name);
                (0..count).for_each(|_| yield_now());
            });
            thread.expect("a thread").join().expect("it ends");
        };
        rounds(100, "unseen");
        let mut turns = Turns::default();
        assert_eq!(turns.look(now_ns()), 0);
        assert_eq!(own(&mut turns, 3).read, [0, 0, 0], "nobody wanted them");
        turns.turns.clear();
        rounds(100, "few");
        // Its processor is given up a moment after the thread has ended.
        let (begun, limit) = (Instant::now(), Duration::from_secs(60));
        while turns.turns.iter().all(|turn| turn.thread.is_some()) {
            assert!(begun.elapsed() < limit, "{:?}", turns.turns);
            assert_eq!(turns.look(now_ns()), 0);
        }
        let kept = std::mem::take(&mut turns.turns);
        assert!(kept.len() > 100, "{}", kept.len());
        let tids: HashSet<u32> = kept.iter().map(|turn| turn.tid).collect();
        let is_own = |tid: &u32| PathBuf::from(format!("/proc/self/task/{tid}")).exists();
        assert!(tids.iter().all(is_own), "{tids:?}");
        // Far more than there is room for.
        let places = 3 * u64::from(RUNTIME_TURNS);
        rounds(20_000, "many");
        assert!(turns.look(now_ns()) >= 20_000 - places, "they are counted");
        assert!(turns.turns.len() as u64 <= places);
        turns.end();
        turns.turns.clear();
        rounds(100, "unseen");
        turns.look(now_ns());
        assert!(turns.turns.len() < 10, "nobody wants them any more");
        let own = turns
            .threads
            .iter()
            .filter(|one| one.pid == std::process::id());
        let numbers: HashSet<u32> = own.map(|one| one.number).collect();
        assert!(
            numbers.is_superset(&HashSet::from([2, 3])),
            "{:?}",
            turns.threads
        );
    }

    #[test]
    fn what_a_runtime_cannot_have_noted_is_not_kept() {
        let file = tempfile(&RuntimeTurn {
            at_ns: 1,
            tid: u32::MAX,
            thread: 7,
        });
        let (mut traced, _) = Traced::new(std::process::id(), file, 0).expect("a runtime's");
        let lies = u64::MAX.as_bytes();
        traced
            .file
            .write_all_at(lies, words_at(0) + 8)
            .expect("room");
        let (new, lost) = traced.look(1, true);
        assert!(new.len() < RUNTIME_TURNS as usize && lost > 0, "{lost}");
        let mut threads = Vec::new();
        assert!(
            new.iter()
                .all(|turn| traced.keep(turn, &mut threads).is_none())
        );
        assert!(threads.is_empty());
        // It goes backwards.
        traced
            .file
            .write_all_at(1u64.as_bytes(), words_at(0) + 8)
            .expect("room");
        assert!(traced.look(1, true).0.is_empty());
    }

    /// A runtime's file, of one processor, full of that turn.
    fn tempfile(turn: &RuntimeTurn) -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("lies", flags).expect("a file"));
        let mut runtime = Box::new(Runtime::new_zeroed());
        (runtime.version, runtime.processors) = (ecalls_abi::ABI_VERSION, 1);
        file.write_all_at(runtime.as_bytes(), 0).expect("room");
        let turns = vec![*turn; RUNTIME_TURNS as usize];
        let end = size_of::<Runtime>() as u64;
        file.write_all_at(turns.as_bytes(), end).expect("room");
        file
    }
}
