//! The scenarios of the papers' figures on one simulated CPU, with bounds; and exact replay.
//!
//! Players have a frame timer each 25 to 35 ms and best-effort chunks of 0.5 ms that nothing
//! preempts, so the chunk is the floor of tardiness. A context switch costs 5 us here.

use sched_sim::machine::Machine;
use sched_sim::policy::{Options, Window};
use sched_sim::script::{Chance, Hog, Player, Viewer};
use sched_sim::thread::{Action, Figures, NICE_0, Script, Spec, View};
use sched_sim::world;

const US: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
/// How long each scenario runs.
const LENGTH: u64 = 60 * SECOND;

struct Scenario {
    machine: Machine,
    players: Vec<usize>,
    hogs: Vec<usize>,
}

/// Adaptive players, of which the later ones have the larger frames, beside hogs, all on one CPU.
/// `one_group`: of the players. The first player misbehaves if `delays`.
fn scenario(players: u64, hogs: u64, one_group: bool, delays: u64) -> Scenario {
    let mut machine = Machine::new(1, 1, &Options::default());
    machine.switch_ns = 5 * US;
    let group = one_group.then_some(0);
    let spec = Spec {
        group,
        ..Spec::registered(0)
    };
    let players = (0..players)
        .map(|i| {
            let frame_ns = ((i + 1) * 1_000_000, (i + 1) * 3_000_000);
            let mut player = Player::new(i + 1, frame_ns);
            player.delays = if i == 0 { delays } else { 0 };
            machine.add(spec, i, player)
        })
        .collect();
    let hogs = (0..hogs)
        .map(|_| machine.add(Spec::plain(0), 0, Hog))
        .collect();
    machine.run_until(LENGTH).expect("the machine's rules hold");
    Scenario {
        machine,
        players,
        hogs,
    }
}

impl Scenario {
    fn tardiness(&self, player: usize, part: f64) -> u64 {
        self.machine
            .figures(self.players[player])
            .tardiness_at(part)
    }

    /// The worst of all players but the first `from`.
    fn tardiness_max(&self, from: usize) -> u64 {
        let worst = (from..self.players.len()).map(|player| self.tardiness(player, 1.0));
        worst.max().expect("players")
    }

    fn frames(&self) -> Vec<f64> {
        let frames = |&player: &usize| self.machine.figures(player).frames as f64;
        self.players.iter().map(frames).collect()
    }

    fn shares(&self, threads: &[usize]) -> Vec<f64> {
        let share = |&thread: &usize| self.machine.figures(thread).ran_ns as f64 / LENGTH as f64;
        threads.iter().map(share).collect()
    }
}

/// Jain's index: 1 if all are equal, 1/n if one has all.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

#[test]
fn figure_5_one_player_beside_hogs_is_on_time_and_they_have_their_share() {
    let run = scenario(1, 4, false, 0);
    assert!(run.machine.figures(run.players[0]).tardiness_ns.len() > 1000);
    let max = run.tardiness_max(0);
    assert!(max <= 600 * US, "{max} ns");
    for share in run.shares(&run.hogs) {
        assert!(share >= 0.2 * 0.98, "{share}");
    }
}

#[test]
fn figure_6_eight_players_are_on_time_at_full_load() {
    for one_group in [false, true] {
        let run = scenario(8, 4, one_group, 0);
        let p99 = (0..8).map(|player| run.tardiness(player, 0.99)).max();
        let max = run.tardiness_max(0);
        assert!(p99 <= Some(600 * US), "{p99:?} ns, one group: {one_group}");
        assert!(max <= 1000 * US, "{max} ns, one group: {one_group}");
    }
}

#[test]
fn players_that_keep_the_rules_are_not_demoted() {
    for one_group in [false, true] {
        let run = scenario(8, 4, one_group, 0);
        for &player in &run.players {
            let of = run.machine.entity(player);
            let demoted = (of.overran, of.slept, of.ahead);
            assert_eq!(demoted, (0, 0, 0), "one group: {one_group}");
        }
    }
}

#[test]
fn figure_7_players_and_hogs_share_the_cpu_fairly() {
    let run = scenario(8, 4, false, 0);
    let players = jain(&run.shares(&run.players));
    assert!(players >= 0.99, "{players}");
    let all = [run.shares(&run.players), run.shares(&run.hogs)].concat();
    assert!(jain(&all) >= 0.99, "{all:?}");
}

#[test]
fn figure_8_one_group_makes_frame_rates_equal() {
    let one = jain(&scenario(8, 4, true, 0).frames());
    let each = jain(&scenario(8, 4, false, 0).frames());
    assert!(one >= 0.98, "{one}");
    assert!(each < 0.9, "{each}: equal CPU time is not equal quality");
}

#[test]
fn figure_10_a_group_has_the_share_of_its_members() {
    let run = scenario(8, 4, true, 0);
    let players: f64 = run.shares(&run.players).iter().sum();
    assert!((0.64..=0.69).contains(&players), "{players} of two thirds");
}

#[test]
fn figure_12_misbehaviour_hurts_only_who_misbehaves() {
    let run = scenario(8, 4, false, 100);
    let policed = run.machine.entity(run.players[0]);
    assert!(policed.overran > 10, "{policed:?}");
    let own = run.tardiness_max(0);
    assert!(own > 2000 * US, "{own} ns");
    let others = run.tardiness_max(1);
    assert!(others <= 2000 * US, "{others} ns");
}

/// The part of its frames that each player shows in time, of ECalls-05 §5.4: 10 frames a second of
/// 9 ms, of which one in five may be missed, each from a time of its own on, beside four hogs; and
/// the hogs' part of the CPU.
fn live(players: u64, seed: u64) -> (Vec<f64>, f64) {
    let (period, frame) = (100_000 * US, 9_000 * US);
    let mut chance = Chance::new(seed);
    let mut machine = Machine::new(1, 1, &Options::default());
    machine.switch_ns = 5 * US;
    let spec = Spec {
        window: Some((Window::new(period, frame * 104 / 100, 1, 5), true)),
        ..Spec::registered(0)
    };
    let viewers: Vec<usize> = (0..players)
        .map(|_| {
            let first_ns = chance.between(1, period);
            machine.add(spec, 0, Viewer::new(period, frame, first_ns))
        })
        .collect();
    let hogs = [0; 4].map(|_| machine.add(Spec::plain(0), 0, Hog));
    machine.run_until(LENGTH).expect("the machine's rules hold");
    let frames = |&viewer: &usize| machine.figures(viewer).frames as f64;
    let ran = |hog| machine.figures(hog).ran_ns as f64;
    let wanted = (LENGTH / period) as f64;
    (
        viewers
            .iter()
            .map(|viewer| frames(viewer) / wanted)
            .collect(),
        hogs.map(ran).iter().sum::<f64>() / LENGTH as f64,
    )
}

#[test]
fn ecalls_figure_9_players_keep_their_frame_rate_up_to_the_reserve() {
    for players in 1..=10 {
        for seed in 0..10 {
            let (shown, hogs) = live(players, seed);
            let least = shown.iter().copied().fold(1.0, f64::min);
            assert!(least >= 0.99, "{players} players, seed {seed}: {shown:?}");
            let rest = 1.0 - 0.09 * players as f64;
            assert!(
                hogs >= 0.97 * rest,
                "{players} players, seed {seed}: {hogs}"
            );
        }
    }
}

/// In about one run of fifteen a player shows less although its window is kept, whatever the slices
/// of the hogs: of 120 runs, 7 with slices of 8 ms and 9 with those of 1.5 ms.
#[test]
fn ecalls_figure_9_players_beyond_the_cpu_miss_what_they_may_and_all_alike() {
    let mut less = Vec::new();
    for players in 11..=12 {
        for seed in 0..10 {
            let (shown, hogs) = live(players, seed);
            let promised = shown[..10].iter().copied().fold(1.0, f64::min);
            if promised < 0.79 {
                less.push((players, seed, promised));
            }
            assert!(jain(&shown) >= 0.98, "{players} players: {shown:?}");
            assert!(hogs >= 0.04, "{players} players: {hogs}");
        }
    }
    assert!(less.len() <= 2, "{less:?}");
}

/// Polls once, and then only computes.
struct Silent(bool);

impl Script for Silent {
    fn next(&mut self, view: &View, _: &mut Figures) -> Action {
        match std::mem::replace(&mut self.0, true) {
            true => Action::Run(SECOND),
            false => Action::Poll {
                release_ns: view.now,
                importance: 0,
            },
        }
    }
}

#[test]
fn figure_12_who_is_demoted_is_no_worse_off_than_a_hog() {
    for group in [None, Some(0)] {
        let mut machine = Machine::new(1, 1, &Options::default());
        let spec = Spec {
            group,
            ..Spec::registered(0)
        };
        let demoted = machine.add(spec, 0, Silent(false));
        for player in 1..4 {
            machine.add(spec, player, Player::new(player, (1_000_000, 9_000_000)));
        }
        let hogs = [0; 4].map(|_| machine.add(Spec::plain(0), 0, Hog));
        machine.run_until(LENGTH).expect("the machine's rules hold");
        assert_eq!(machine.entity(demoted).overran, 1);
        let ran = |thread| machine.figures(thread).ran_ns as f64;
        let hog = hogs.map(ran).into_iter().fold(0.0, f64::max);
        assert!(ran(demoted) >= 0.99 * hog, "{} of {hog}", ran(demoted));
        let waited = |thread| machine.figures(thread).waited_ns_max;
        let longest = hogs.map(waited).into_iter().max().unwrap_or(0);
        assert!(
            waited(demoted) <= 2 * longest,
            "{} beside {longest}",
            waited(demoted)
        );
    }
}

/// The same seed is the same run; and worlds by chance keep what `Machine::check` demands. The
/// command `sched-sim` does the same for many more.
#[test]
fn worlds_keep_their_promises_and_repeat_exactly() {
    // The last one once let an event without a promise go before a promised claim.
    for seed in (1..150).chain([1_795_382_577]) {
        let nice_0 = NICE_0[(seed % 3) as usize];
        let first = world::run(seed, nice_0, 2 * SECOND);
        assert!(first.is_ok(), "{first:?}");
        if seed % 10 == 0 {
            assert_eq!(first, world::run(seed, nice_0, 2 * SECOND), "seed {seed}");
        }
    }
}
