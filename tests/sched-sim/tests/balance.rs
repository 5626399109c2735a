//! Balance between CPUs: the decision for itself, and what becomes of threads on several CPUs that
//! decide by it. Each CPU does what bpf/sched/take.h does, tick by tick.

use sched_sim::policy::{Load, Look, Wants, moved};
use sched_sim::script::Chance;

/// Of nice 0.
const USUAL: u64 = 6400;
const MS: u64 = 1_000_000;
const WHOLE: u64 = 1 << 20;
const TICK_MS: u64 = 4;
const PERIOD_MS: u64 = 20;
const ROTATE_MS: u64 = 40;
const LOOKS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Thread {
    weight: u64,
    pinned: Option<usize>,
    cpu: usize,
    vtime: u64,
    ran_ms: u64,
}

#[derive(Clone, Copy, Default)]
struct Processor {
    running: Option<usize>,
    looked: usize,
    took: bool,
    rotate_ms: u64,
    vtime: u64,
}

struct Machine {
    threads: Vec<Thread>,
    processors: Vec<Processor>,
    now_ms: u64,
    moves: u64,
    chance: Chance,
}

impl Machine {
    fn new(cpus: usize, threads: &[(u64, Option<usize>, usize)]) -> Self {
        let threads = threads.iter().map(|&(weight, pinned, cpu)| Thread {
            weight,
            pinned,
            cpu,
            vtime: 0,
            ran_ms: 0,
        });
        Self {
            threads: threads.collect(),
            processors: vec![Processor::default(); cpus],
            now_ms: ROTATE_MS,
            moves: 0,
            chance: Chance::new(1),
        }
    }

    /// Those that want a CPU but do not run, the one that has had least first.
    fn waiting(&self, cpu: usize) -> Vec<usize> {
        let running = self.processors[cpu].running;
        let mut waiting: Vec<_> = (0..self.threads.len())
            .filter(|&i| self.threads[i].cpu == cpu && running != Some(i))
            .collect();
        waiting.sort_by_key(|&i| self.threads[i].vtime);
        waiting
    }

    fn load(&self, cpu: usize) -> Load {
        let mine = self.threads.iter().filter(|thread| thread.cpu == cpu);
        Load::new(mine.map(|thread| thread.weight).sum(), 0)
    }

    fn go(&mut self, thread: usize, cpu: usize) {
        let (from, to) = (self.threads[thread].cpu, cpu);
        let (from, to) = (self.processors[from].vtime, self.processors[to].vtime);
        let thread = &mut self.threads[thread];
        thread.vtime = moved(thread.vtime, from, to);
        thread.cpu = cpu;
        self.moves += 1;
    }

    /// A thread that this CPU takes from the next one that it looks at.
    fn balance(&mut self, cpu: usize) -> Option<usize> {
        let cpus = self.processors.len();
        let processor = &mut self.processors[cpu];
        if std::mem::take(&mut processor.took) {
            return None;
        }
        let next = (processor.looked + 1) % cpus;
        processor.looked = if next == cpu { (next + 1) % cpus } else { next };
        let other = processor.looked;
        let wanted = if self.now_ms >= processor.rotate_ms {
            Wants::Rotates
        } else {
            Wants::Takes
        };
        let look = Look {
            mine: self.load(cpu),
            theirs: self.load(other),
            vtime: self.processors[other].vtime,
            period_ns: PERIOD_MS * MS,
            wanted,
            pad: 0,
        };
        let mut first = self.waiting(other).into_iter().take(LOOKS);
        let taken = first.find(|&i| {
            let thread = &self.threads[i];
            thread.pinned.is_none() && look.takes(thread.vtime, thread.weight)
        })?;
        self.processors[cpu].took = true;
        let rotate_ms = self.now_ms + ROTATE_MS + self.chance.between(0, PERIOD_MS - 1);
        self.processors[cpu].rotate_ms = rotate_ms;
        self.processors[other].rotate_ms = rotate_ms;
        Some(taken)
    }

    fn steal(&mut self, cpu: usize) -> Option<usize> {
        let others = (0..self.processors.len()).filter(|&other| other != cpu);
        others
            .flat_map(|other| self.waiting(other))
            .find(|&i| self.threads[i].pinned.is_none())
    }

    fn choose(&mut self, cpu: usize) {
        if !self.threads.iter().any(|thread| thread.cpu == cpu) {
            if let Some(taken) = self.steal(cpu) {
                self.go(taken, cpu);
                self.processors[cpu].running = Some(taken);
            }
            return;
        }
        if let Some(taken) = self.balance(cpu) {
            self.go(taken, cpu);
            self.processors[cpu].running = Some(taken);
            return;
        }
        self.processors[cpu].running = None;
        self.processors[cpu].running = self.waiting(cpu).first().copied();
    }

    fn run(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            for cpu in 0..self.processors.len() {
                self.choose(cpu);
            }
            for cpu in 0..self.processors.len() {
                let Some(running) = self.processors[cpu].running else {
                    continue;
                };
                let thread = &mut self.threads[running];
                thread.ran_ms += TICK_MS;
                thread.vtime += TICK_MS * MS * 100 / thread.weight;
                let here = self.threads.iter().filter(|thread| thread.cpu == cpu);
                let least = here.map(|thread| thread.vtime).min().expect("it runs");
                self.processors[cpu].vtime = self.processors[cpu].vtime.max(least);
            }
            self.now_ms += TICK_MS;
        }
    }

    /// Of a CPU, what each thread has in a while, once it has settled.
    fn shares(&mut self, settle_ms: u64, ms: u64) -> Vec<f64> {
        self.run(settle_ms);
        let before: Vec<_> = self.threads.iter().map(|thread| thread.ran_ms).collect();
        self.moves = 0;
        self.run(ms);
        let had = self.threads.iter().zip(before);
        had.map(|(thread, before)| (thread.ran_ms - before) as f64 / ms as f64)
            .collect()
    }
}

/// What is due to threads that may go anywhere: by weight, and to none more than a CPU.
fn due(weights: &[u64], cpus: usize) -> Vec<f64> {
    let mut due = vec![0.0; weights.len()];
    let mut order: Vec<_> = (0..weights.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(weights[i]));
    let (mut left, mut sum) = (cpus as f64, weights.iter().sum::<u64>() as f64);
    for i in order {
        due[i] = (left * weights[i] as f64 / sum).min(1.0);
        left -= due[i];
        sum -= weights[i] as f64;
    }
    due
}

fn assert_near(had: &[f64], due: &[f64], room: f64) {
    for (had, due) in had.iter().zip(due) {
        assert!((had / due - 1.0).abs() < room, "{had} instead of {due}");
    }
}

#[test]
fn a_thread_goes_where_it_has_more() {
    let wants = |mine, theirs, weight| Load::new(mine, 0).wants(&Load::new(theirs, 0), weight);
    assert_eq!(wants(0, 2 * USUAL, USUAL), Wants::Takes);
    assert_eq!(wants(USUAL, 2 * USUAL, USUAL), Wants::Rotates, "3 on 2");
    assert_eq!(wants(USUAL, USUAL, USUAL), Wants::Stays);
    assert_eq!(wants(USUAL, 2 * USUAL, 100), Wants::Takes, "a light one");
    assert_eq!(
        wants(USUAL, 2 * USUAL, 3 * USUAL),
        Wants::Stays,
        "too heavy"
    );
    // By count the other CPU has more to carry.
    assert_eq!(wants(8 * 687, 2 * USUAL + 3 * 687, USUAL), Wants::Takes);
}

#[test]
fn what_windows_leave_of_a_cpu_is_what_its_threads_share() {
    let half = Load::new(USUAL, WHOLE / 2);
    let whole = Load::new(USUAL, 0);
    assert_eq!(whole.wants(&half, USUAL / 2), Wants::Takes);
    assert_eq!(half.wants(&whole, 100), Wants::Stays);
    // A CPU that windows need all of has its threads still.
    let none = Load::new(USUAL, WHOLE);
    assert!(none.left > 0);
    assert_eq!(none.wants(&whole, 1), Wants::Stays);
}

#[test]
fn a_change_of_weights_by_a_few_percent_moves_nobody_at_once() {
    for more in 0..USUAL / 5 {
        let (mine, theirs) = (Load::new(USUAL, 0), Load::new(2 * USUAL + more, 0));
        assert_eq!(mine.wants(&theirs, USUAL), Wants::Rotates);
    }
}

#[test]
fn the_greatest_sums_do_not_overflow() {
    let (least, most) = (Load::new(0, 0), Load::new((1 << 42) - 1, 0));
    assert_eq!(least.wants(&most, 640_000), Wants::Takes);
    assert_eq!(most.wants(&least, 640_000), Wants::Stays);
}

#[test]
fn three_equal_threads_have_two_thirds_of_two_cpus_each() {
    let mut machine = Machine::new(2, &[(USUAL, None, 0); 3]);
    assert_near(&machine.shares(1000, 20_000), &[2.0 / 3.0; 3], 0.1);
}

#[test]
fn heavy_threads_leave_each_other_and_light_ones_fill_up() {
    // As many on each CPU, but both heavy ones on the first.
    let threads: [_; 10] = std::array::from_fn(|i| match i {
        0 | 1 => (USUAL, None, 0),
        _ => (687, None, usize::from(i >= 5)),
    });
    let mut machine = Machine::new(2, &threads);
    let due = due(&threads.map(|(weight, ..)| weight), 2);
    assert_near(&machine.shares(2000, 20_000), &due, 0.1);
}

#[test]
fn a_control_group_makes_way_for_pinned_threads() {
    let mut threads = vec![(USUAL, Some(0), 0); 2];
    threads.extend((0..200).map(|i| (USUAL / 200, None, i % 2)));
    let mut machine = Machine::new(2, &threads);
    let had = machine.shares(3000, 20_000);
    assert_near(&had[..2], &[0.5; 2], 0.05);
    // Those that are here cannot starve those that come, nor the other way round.
    assert!(had[2..].iter().all(|&had| had > 0.0025), "{had:?}");
}

#[test]
fn pinned_threads_of_a_light_cpu_are_not_starved_by_those_that_come() {
    let mut threads = vec![(25, None, 0); 2000];
    threads.push((USUAL, Some(1), 1));
    let mut machine = Machine::new(2, &threads);
    machine.run(400);
    assert!(machine.threads[2000].ran_ms >= 190, "every other turn");
}

#[test]
fn free_threads_come_near_to_what_their_weights_say() {
    let seed = std::env::var("ECALLS_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in seed..seed + 150 {
        let mut chance = Chance::new(seed);
        let cpus = chance.between(2, 6) as usize;
        let count = chance.between(2, 30);
        // nice 0, 5, 10 and -5
        let weights = [6400, 2093, 687, 19_500];
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let weight = weights[chance.between(0, 3) as usize];
                (weight, None, chance.between(0, cpus as u64 - 1) as usize)
            })
            .collect();
        let mut machine = Machine::new(cpus, &threads);
        let had = machine.shares(4000, 20_000);
        let weights: Vec<_> = threads.iter().map(|thread| thread.0).collect();
        for (had, due) in had.iter().zip(due(&weights, cpus)) {
            assert!(had / due > 0.65, "seed {seed}: {had} instead of {due}");
        }
        let moves = machine.moves as f64 / 20.0 / cpus as f64;
        assert!(moves < 40.0, "seed {seed}: {moves} per CPU and second");
    }
}

#[test]
fn a_thread_is_taken_that_would_soon_run_where_it_waits() {
    let takes = |mine: u64, vtime, weight| {
        let look = Look {
            mine: Load::new(mine, 0),
            theirs: Load::new(8 * USUAL, 0),
            vtime: 0,
            period_ns: PERIOD_MS * MS,
            wanted: Wants::Rotates,
            pad: 0,
        };
        look.takes(vtime, weight)
    };
    // What it is ahead after a tick: its turn comes after as long as the others' parts of that, 32
    // ms, and of the light one 298 ms.
    let tick = |weight: u64| TICK_MS * MS * 100 / weight;
    assert!(takes(7 * USUAL, tick(USUAL) / 2, USUAL));
    assert!(!takes(7 * USUAL, tick(USUAL), USUAL), "a turn more");
    assert!(takes(0, tick(687), 687));
    assert!(!takes(0, 4 * tick(687), 687));
}
