//! Load balancing with loads that are told once a second, simulated with the state machines that
//! managers and clients run: eight hosts, jobs of 38 ms on average, load 0.8. Compares asking the
//! one best host, the three best ones and two at random, where those that have not begun are
//! cancelled when one begins.

mod world;

use ecalls_cluster::ask::Outcome;
use ecalls_cluster::choice::{Choice, Told, choose};
use ecalls_cluster::lease::Leases;
use ecalls_cluster::message::{Body, Want};
use ecalls_cluster::resource::Resource;
use ecalls_cluster::summary::Summary;
use world::{Event, MS, Network, SECOND, World};

const HOSTS: u64 = 8;
const JOB_NS: f64 = 38.0 * MS as f64;
const LOAD: f64 = 0.8;
const TIME_NS: u64 = 150 * SECOND;

// What happens, besides messages: a job arrives, a host tells, a job has been done.
const ARRIVE: u64 = 0;
const TELL: u64 = 1;
const DONE: u64 = 1000;

/// Mean and 99th percentile of the time from a job's arrival to its end, ms; and its number.
struct Figures {
    mean_ms: f64,
    p99_ms: f64,
    jobs: usize,
}

fn simulate(seed: u64, choice: Choice, told_every_ns: u64) -> Figures {
    let network = Network {
        delay_ns: MS / 10,
        jitter_ns: MS / 20,
        lost: 0,
        repeated: 0,
    };
    let mut world = World::new(seed, HOSTS as usize, 1, network);
    let mut told: Vec<Summary> = vec![Summary::default(); HOSTS as usize];
    world.at(0, Event::Own(ARRIVE));
    for host in 0..HOSTS {
        let at_ns = world.random.below(told_every_ns);
        world.at(at_ns, Event::Own(TELL + host));
    }
    // Jobs whose allocation has not ended, and the times of those that were done.
    let (mut open, mut times) = (Vec::new(), Vec::new());
    let mut next_look_ns = 0;
    loop {
        let Some(own) = world.step_until(next_look_ns) else {
            if next_look_ns >= TIME_NS {
                break;
            }
            next_look_ns += MS;
            open.retain(|number: &usize| begin(&mut world, *number));
            continue;
        };
        match own {
            ARRIVE => {
                // Half of all jobs arrive at one host, which knows its own load.
                let home = match world.random.below(2) {
                    0 => 1,
                    _ => 1 + world.random.below(HOSTS),
                };
                let own = summary(&world, home);
                let hosts = told.iter().zip(1..).map(|(summary, host)| Told {
                    host,
                    age_ns: 0,
                    summary: if host == home { own } else { *summary },
                });
                let hosts: Vec<Told> = hosts.collect();
                let chosen = choose(&hosts, choice, || world.random.next());
                let number = world.ask(home, want(), &chosen);
                open.push(number);
                let pause_ns = world.random.exponential(JOB_NS / LOAD / HOSTS as f64);
                world.at(world.now_ns + pause_ns, Event::Own(ARRIVE));
            }
            DONE.. => {
                let running = &world.asks[(own - DONE) as usize];
                times.push(world.now_ns - running.begun_ns);
                if let Some((_, Outcome::Granted { host, .. })) = running.ended {
                    let key = running.key;
                    world.tell_manager(host, key, Body::Release);
                }
            }
            _ => {
                told[(own - TELL) as usize] = summary(&world, own);
                world.at(world.now_ns + told_every_ns, Event::Own(own));
            }
        }
    }
    times.sort_unstable();
    let sum: u64 = times.iter().sum();
    Figures {
        mean_ms: sum as f64 / times.len() as f64 / MS as f64,
        p99_ms: times[times.len() * 99 / 100] as f64 / MS as f64,
        jobs: times.len(),
    }
}

fn want() -> Want {
    Want {
        resource: Resource::Job,
        amount: 1,
        left_ns: 600 * SECOND,
        hold_ns: 600 * SECOND,
        waits: true,
    }
}

/// What a host would tell now.
fn summary(world: &World, host: u64) -> Summary {
    let leases = world.managers[host as usize - 1].as_ref();
    let counts = leases.map(Leases::counts).unwrap_or_default();
    Summary {
        waiting: counts.waiting,
        busy: 1000 * (counts.reserved + counts.confirmed),
        ..Summary::default()
    }
}

/// A job whose host has confirmed begins there; whether it still waits.
fn begin(world: &mut World, number: usize) -> bool {
    let Some((ended_ns, outcome)) = world.asks[number].ended else {
        return true;
    };
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    let end_ns = ended_ns + world.random.exponential(JOB_NS);
    let at_ns = end_ns.max(world.now_ns + 1);
    world.at(at_ns, Event::Own(DONE + number as u64));
    false
}

#[test]
fn three_best_and_two_random_hosts_beat_the_one_best_when_loads_are_old() {
    let show = |name: &str, figures: &Figures| {
        let Figures {
            mean_ms,
            p99_ms,
            jobs,
        } = figures;
        println!("{name}: mean {mean_ms:.0} ms, p99 {p99_ms:.0} ms, {jobs} jobs");
    };
    for seed in [1, 2, 3] {
        let best = simulate(seed, Choice::Best(1), SECOND);
        let three = simulate(seed, Choice::Best(3), SECOND);
        let two = simulate(seed, Choice::Random(2), SECOND);
        let fresh = simulate(seed, Choice::Best(1), MS);
        show("1 best", &best);
        show("3 best + cancel", &three);
        show("2 random + cancel", &two);
        show("1 best, told each ms", &fresh);
        assert!(best.jobs > 24_000 && three.jobs > 24_000);
        assert!(three.mean_ms <= 0.5 * best.mean_ms);
        assert!(two.mean_ms <= 0.5 * three.mean_ms);
        assert!(two.mean_ms <= 1.5 * fresh.mean_ms);
    }
}
