//! The rows, the workloads that give them, and what is reported of each.
//!
//! Several rows come from one run, as in the paper: tardiness (Figure 6), CPU shares (7, 10) and
//! frame rates (8) are those of the same players.

use super::figures::{Figure, Figures};
use super::player::Clip;
use super::stage::{Seen, Workload};
use super::switching;
use super::work::Random;
use super::{coop, coop::Subject};

const MS: u64 = 1_000_000;
/// CPU time of a best-effort event, as the papers' players have it, and a short one.
const PIECE_NS: u64 = MS / 2;
const SHORT_PIECE_NS: u64 = 20_000;
/// How long the plain sleeper sleeps: no multiple of a tick, so that it wakes at all times between
/// two of them.
const SLEEP_NS: u64 = 10_300_000;
/// Adaptive players and best-effort threads of Coop §5.2.
const PLAYERS: u64 = 8;
const HOGS: usize = 4;
/// Players of Figure 13. Seven of them need the whole CPU.
const PLAYERS_MAX: u64 = 14;

/// Players of ECalls-05, Figure 3, and of Figure 9. Ten of the latter need 90 % of the CPU, and
/// twelve more than there is.
const DELAYED: [u64; 4] = [1, 2, DELAYED_USUAL, 8];
const DELAYED_USUAL: u64 = 4;
const LIVE: [u64; 6] = [2, 4, 6, 8, 10, 12];

/// How players are scheduled in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    /// As the scheduler under test would have it.
    Usual,
    /// As the kernel's own would have it, under each: nobody polls.
    Never,
    /// By our scheduler with a period of 1 ms, without polling (Coop §5.7).
    ShortPeriod,
    /// There are none: [`switching`] measures.
    Handing,
    /// An unmodified program: [`coop`] measures.
    Unmodified(Subject),
}

/// A row: its name, the figure it is from, what it is, and what is reported of it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) source: &'static str,
    pub(super) what: &'static str,
    pub(super) figures: &'static [Figure],
}

/// A workload, and the rows that it gives.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) polling: Polling,
    pub(super) rows: Vec<Row>,
}

const LATE: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::Switches,
    Figure::Overran,
    Figure::Slept,
    Figure::Ahead,
];
const LATE_AND_SHARES: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::Switches,
    Figure::HogShare,
    Figure::Overran,
    Figure::Slept,
    Figure::Ahead,
];
const SHARES: &[Figure] = &[Figure::Jain, Figure::HogJain, Figure::HogShare];
const RATES: &[Figure] = &[Figure::FpsJain, Figure::Fps, Figure::Jain];
const RATE: &[Figure] = &[
    Figure::Throughput,
    Figure::Fps,
    Figure::P99,
    Figure::Max,
    Figure::Switches,
    Figure::Overran,
    Figure::Slept,
    Figure::Ahead,
];
const MISBEHAVED: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::BadP99,
    Figure::BadMax,
    Figure::Overran,
    Figure::Slept,
    Figure::Ahead,
];
const DELAYS: &[Figure] = &[
    Figure::Mean,
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::HogShare,
];
const WAKES: &[Figure] = &[Figure::Mean, Figure::P50, Figure::P99, Figure::Max];
const LIVE_RATES: &[Figure] = &[
    Figure::Fps,
    Figure::FpsJain,
    Figure::Mean,
    Figure::P99,
    Figure::HogShare,
];
const PERIODIC: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::Switches,
    Figure::Throughput,
];

/// The player with this number: the further, the fewer frames has its clip and the more each costs.
/// Each alone could use more than its share of the CPU (8.3 % of twelve threads).
fn clip(number: u64) -> Clip {
    Clip {
        period_ns: (25 + number) * MS,
        frame_ns: (22 + 7 * number) * MS / 10,
        is_steady: false,
        piece_ns: PIECE_NS,
        misbehaves: false,
        live_from_ns: None,
    }
}

fn row(name: &str, source: &'static str, what: &'static str, figures: &'static [Figure]) -> Row {
    Row {
        name: name.to_owned(),
        source,
        what,
        figures,
    }
}

fn run(players: Vec<Clip>, hogs: usize, rows: Vec<Row>) -> Run {
    Run {
        workload: Workload {
            players,
            is_one_group: false,
            hogs,
            are_hogs_real_time: false,
        },
        polling: Polling::Usual,
        rows,
    }
}

/// All of them, in the order of the papers.
pub(super) fn all() -> Vec<Run> {
    let eight: Vec<Clip> = (0..PLAYERS).map(clip).collect();
    let with = |change: fn(u64, &mut Clip)| {
        let mut clips = eight.clone();
        for (clip, number) in clips.iter_mut().zip(0..) {
            change(number, clip);
        }
        clips
    };
    let mut runs = vec![
        run(
            vec![clip(PLAYERS - 1)],
            HOGS,
            vec![row(
                "fig5",
                "Coop Figure 5",
                "1 player, 4 hogs",
                LATE_AND_SHARES,
            )],
        ),
        run(eight.clone(), HOGS, groups()),
        one_group(eight.clone()),
        run(
            with(|number, clip| clip.misbehaves = number == PLAYERS - 1),
            HOGS,
            vec![row(
                "fig12",
                "Coop Figure 12",
                "8 players, 4 hogs; one player (bad_) keeps the CPU up to 10 ms, once in 100 polls",
                MISBEHAVED,
            )],
        ),
    ];
    runs.extend((1..=PLAYERS_MAX).map(throughput));
    let periodic = |what| vec![row("periodic", "Coop §5.7", what, PERIODIC)];
    runs.push(run(eight.clone(), 0, periodic("8 players, no hog")));
    let mut short = run(
        eight.clone(),
        0,
        periodic("the same, not polling, period 1 ms"),
    );
    short.polling = Polling::ShortPeriod;
    runs.push(short);
    runs.push(run(
        with(|_, clip| clip.piece_ns = SHORT_PIECE_NS),
        HOGS,
        vec![row(
            "short_chunks",
            "as Coop Figure 6",
            "8 players whose events take 20 us, 4 hogs",
            LATE_AND_SHARES,
        )],
    ));
    runs.push(switching::run());
    runs.extend(DELAYED.into_iter().map(delays));
    runs.extend(LIVE.into_iter().map(live_rates));
    runs.push(sleeper());
    runs.extend(coop::runs());
    runs
}

fn groups() -> Vec<Row> {
    vec![
        row(
            "fig6_groups",
            "Coop Figure 6",
            "8 players each for itself, 4 hogs: how late timers are",
            LATE,
        ),
        row(
            "fig7",
            "Coop Figure 7",
            "the same run: CPU shares of the players, and of the hogs",
            SHARES,
        ),
        row(
            "fig8_groups",
            "Coop Figure 8a",
            "the same run: frame rates (and CPU shares)",
            RATES,
        ),
    ]
}

fn one_group(players: Vec<Clip>) -> Run {
    let rows = vec![
        row(
            "fig6_one_group",
            "Coop Figure 6",
            "8 players in one group, 4 hogs: how late timers are",
            LATE_AND_SHARES,
        ),
        row(
            "fig8_one_group",
            "Coop Figures 8b, 10",
            "the same run: frame rates, and CPU shares",
            RATES,
        ),
    ];
    let mut run = run(players, HOGS, rows);
    run.workload.is_one_group = true;
    run
}

/// Figure 13: so many equal players.
fn throughput(players: u64) -> Run {
    let clip = Clip {
        period_ns: 28 * MS,
        frame_ns: 4 * MS,
        is_steady: true,
        piece_ns: PIECE_NS,
        misbehaves: false,
        live_from_ns: None,
    };
    let rows = vec![row(
        &format!("fig13_{players}"),
        "Coop Figure 13",
        "so many equal players, no hog: frames decoded per second by all",
        RATE,
    )];
    run(vec![clip; players as usize], 0, rows)
}

/// A player of ECalls-05.
fn live(period_ns: u64, frame_ns: u64, from_ns: u64) -> Clip {
    Clip {
        period_ns,
        frame_ns,
        is_steady: true,
        piece_ns: PIECE_NS,
        misbehaves: false,
        live_from_ns: Some(from_ns),
    }
}

/// ECalls-05, Figure 3: so many players beside one process in an endless loop, which is real-time
/// where they are. Their frames come one after the other, so that nobody waits for a player.
fn delays(players: u64) -> Run {
    let period_ns = 40 * MS;
    let clips = (0..players).map(|number| live(period_ns, 4 * MS, period_ns * number / players));
    let name = match players {
        DELAYED_USUAL => "ecalls_fig3".to_owned(),
        _ => format!("ecalls_fig3_{players}"),
    };
    let what = "players of 25 frames per second beside an endless loop: from a frame's time until \
                its player runs";
    let rows = vec![row(&name, "ECalls-05 Figure 3", what, DELAYS)];
    let mut run = run(clips.collect(), 1, rows);
    run.workload.are_hogs_real_time = true;
    run
}

/// ECalls-05, Figure 9: so many players that each want 10 frames per second of 9 ms, beside hogs.
/// Each has times of its own, by chance.
fn live_rates(players: u64) -> Run {
    let period_ns = 100 * MS;
    let clips =
        (0..players).map(|number| live(period_ns, 9 * MS, Random::new(number).below(period_ns)));
    let rows = vec![row(
        &format!("ecalls_fig9_{players}"),
        "ECalls-05 Figure 9",
        "so many players of 10 frames per second, 4 hogs: the frames shown in time",
        LIVE_RATES,
    )];
    run(clips.collect(), HOGS, rows)
}

/// A thread that knows nothing of us: it sleeps until a time, looks at the clock, and sleeps again.
fn sleeper() -> Run {
    let rows = vec![row(
        "sleeper",
        "as Coop Figure 5",
        "1 plain thread that sleeps again and again, 4 hogs: from its time until it runs",
        WAKES,
    )];
    let mut run = run(vec![live(SLEEP_NS, 0, SLEEP_NS)], HOGS, rows);
    run.polling = Polling::Never;
    run
}

/// The figures of a run.
pub(super) fn figures(run: &Run, seen: &Seen) -> Figures {
    let is_bad: Vec<bool> = run
        .workload
        .players
        .iter()
        .map(|clip| clip.misbehaves)
        .collect();
    Figures::of(seen, &is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that must be there, whatever else is.
    const CONTRACT: &[&str] = &[
        "fig5",
        "fig6_one_group",
        "fig6_groups",
        "fig7",
        "fig8_one_group",
        "fig8_groups",
        "fig12",
        "fig13_1",
        "fig13_14",
        "periodic",
        "short_chunks",
        "sleeper",
        "switch_cost",
        "coop_loop",
        "coop_python",
        "coop_go",
        "coop_ffplay",
        "coop_mpv",
        "coop_hook",
        "ecalls_fig3",
        "ecalls_fig9_2",
        "ecalls_fig9_10",
    ];

    #[test]
    fn every_row_of_the_contract_exists() {
        let runs = all();
        let names: Vec<&str> = runs
            .iter()
            .flat_map(|run| run.rows.iter().map(|row| row.name.as_str()))
            .collect();
        for row in CONTRACT {
            assert!(names.contains(row), "{row}");
        }
    }

    #[test]
    fn every_player_beside_hogs_could_use_more_than_its_share() {
        for run in all().iter().filter(|run| run.workload.hogs > 0) {
            let threads = run.workload.players.len() + run.workload.hogs;
            for clip in run
                .workload
                .players
                .iter()
                .filter(|clip| clip.live_from_ns.is_none())
            {
                let frames = 1_000_000_000 / clip.period_ns;
                let least_ns = clip.frame_ns * frames * 95 / 100;
                assert!(least_ns * threads as u64 >= 1_000_000_000, "{clip:?}");
            }
        }
    }
}
