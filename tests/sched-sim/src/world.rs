//! Machines by chance, from a seed: CPUs, groups, threads of every kind, lies included. Each is run
//! for a while and must keep what the policy promises.

use crate::machine::Machine;
use crate::policy::{DWCS, Options, SPREAD, Window};
use crate::script::{Chance, Hog, Liar, Mixed, Player, Viewer};
use crate::thread::Spec;

const MS: u64 = 1_000_000;

/// What a run of a world was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub decisions: u64,
    pub switches: u64,
    /// Sums up who ran for how long: equal for equal runs.
    pub digest: u64,
}

/// A machine from a seed, with nothing run yet; `nice_0` as in [`Machine`].
pub fn make(seed: u64, nice_0: u32) -> Machine {
    let mut chance = Chance::new(seed);
    let chance = &mut chance;
    let cpus = chance.between(1, 4) as usize;
    let groups = chance.between(0, 2) as usize;
    let options = Options {
        window_order: if chance.one_in(2) { DWCS } else { SPREAD },
        server_ns: if chance.one_in(4) { MS } else { 0 },
        ..Options::default()
    };
    let mut machine = Machine::new(cpus, groups, &options);
    machine.nice_0 = nice_0;
    for _ in 0..chance.between(1, 12 * cpus as u64) {
        let cpu = chance.between(0, cpus as u64 - 1) as usize;
        add(&mut machine, chance, cpu, groups);
    }
    machine
}

fn add(machine: &mut Machine, chance: &mut Chance, cpu: usize, groups: usize) {
    let start = chance.between(0, 50 * MS);
    let group = (groups > 0 && chance.one_in(3)).then(|| chance.between(0, groups as u64 - 1));
    let weight = [100, 100, 100, 30, 300][chance.between(0, 4) as usize];
    let plain = Spec {
        weight,
        group: group.map(|group| group as usize),
        ..Spec::plain(cpu)
    };
    let registered = Spec {
        registered: true,
        ..plain
    };
    let seed = chance.number();
    let threads = machine.threads() as u64;
    let mixed = Mixed {
        chance: Chance::new(seed),
        run_ns: chance.between(1, 10) * MS,
        sleep_ns: chance.between(0, 3) * 5 * MS,
        threads,
        ends: if chance.one_in(2) { 200 } else { 0 },
        runs: false,
    };
    match chance.between(0, 6) {
        0 => machine.add(plain, start, Hog),
        1 => machine.add(plain, start, mixed),
        2 => {
            let spec = Spec {
                timed: seed.is_multiple_of(2),
                ..registered
            };
            machine.add(spec, start, mixed)
        }
        3 | 4 => machine.add(registered, start, Player::new(seed, (MS, 9 * MS))),
        5 => {
            let chance = Chance::new(seed);
            machine.add(registered, start, Liar { chance })
        }
        _ => {
            let y = chance.between(1, 6) as u32;
            let x = chance.between(0, u64::from(y) - 1) as u32;
            let period = chance.between(2, 40) * MS;
            let service = chance.between(MS / 2, period / 2);
            let wish = Window::new(period, service, x, y);
            let window = Some((wish, chance.one_in(2)));
            let spec = Spec {
                group: None,
                window,
                ..registered
            };
            match seed % 3 {
                0 => machine.add(spec, 0, Hog),
                1 => machine.add(spec, start, mixed),
                _ => machine.add(spec, 0, Viewer::new(period, service, start)),
            }
        }
    };
}

/// Runs the world of a seed. An error says which seed, and what did not hold.
pub fn run(seed: u64, nice_0: u32, ns: u64) -> Result<Run, String> {
    let named = |wrong: String| format!("seed {seed}: {wrong}");
    let mut machine = make(seed, nice_0);
    machine.run_until(ns).map_err(named)?;
    let mut digest = seed;
    for thread in 0..machine.threads() {
        let figures = machine.figures(thread);
        digest = (digest ^ figures.ran_ns ^ figures.turns << 40).wrapping_mul(0x0100_0000_01b3);
        if machine.promised(thread) && machine.entity(thread).window.violated > 0 {
            return Err(named(format!(
                "the window of thread {thread} was promised, and violated: {:?}",
                machine.entity(thread).window
            )));
        }
    }
    Ok(Run {
        decisions: machine.decisions,
        switches: machine.switches,
        digest,
    })
}
