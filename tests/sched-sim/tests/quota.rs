//! Quotas of control groups: the rules one by one, and what groups have over time on several CPUs
//! that know only of their own turns, as bpf/sched/quota.h does it.

use sched_sim::quota::{DEBT, NONE, Quota, TURN_LEAST_NS, TURN_NS, turn};
use sched_sim::script::Chance;

const MS: u64 = 1_000_000;

#[test]
fn a_group_has_its_quota_in_each_period_and_saves_up_its_burst() {
    let mut quota = Quota::new(100_000, 20_000, 0, 0);
    assert_eq!(quota.left(0), 20_000_000);
    quota.charge(15 * MS);
    assert_eq!(quota.left(99 * MS), 5_000_000);
    assert_eq!(quota.left(100 * MS), 20_000_000, "nothing is saved up");
    assert_eq!(quota.left(100 * MS), 20_000_000, "a period begins once");
    assert_eq!(quota.end_ns, 200 * MS);
    let mut quota = Quota::new(100_000, 20_000, 30_000, 0);
    assert_eq!(quota.left(100 * MS), 40_000_000);
    assert_eq!(quota.left(900 * MS), 50_000_000, "the quota and the burst");
}

#[test]
fn a_debt_is_paid_by_the_next_periods_and_has_a_limit() {
    let mut quota = Quota::new(100_000, 20_000, 0, 0);
    quota.charge(50 * MS);
    assert_eq!(quota.left(99 * MS), -30_000_000);
    assert_eq!(quota.left(100 * MS), -10_000_000);
    assert_eq!(quota.left(250 * MS), 10_000_000);
    quota.charge(3_600_000 * MS);
    let periods = (1..).find(|n| quota.left((250 + n * 100) * MS) > 0);
    assert_eq!(periods, Some(DEBT + 1), "nobody waits for ever");
}

#[test]
fn a_limit_is_lifted_and_lowered_at_once() {
    let mut quota = Quota::new(100_000, NONE, 0, 0);
    assert_eq!(quota.quota_ns, 0);
    quota = Quota::new(100_000, 400_000, 400_000, 0);
    assert_eq!(quota.left(500 * MS), 800_000_000);
    let mut quota = Quota::new(10_000, 1_000, 0, 500 * MS);
    assert_eq!(quota.left(500 * MS), 1_000_000);
}

#[test]
fn a_turn_is_no_longer_than_what_is_left() {
    assert_eq!(turn(i64::MAX), TURN_NS);
    assert_eq!(turn(2_000_000), 2 * MS);
    assert_eq!(turn(1), TURN_LEAST_NS);
    assert_eq!(turn(-5), TURN_LEAST_NS);
}

/// Longest time by which a turn ends too late.
const LATE_NS: u64 = 4 * MS;
const WHOLE_NS: u64 = 20_000 * MS;

struct Group {
    quota: Quota,
    above: Option<usize>,
    ran_ns: u64,
    /// CPU time since a moment, for the greatest window.
    periods: Vec<u64>,
}

/// Groups of which each may be in an earlier one, and threads that always compute.
struct World {
    groups: Vec<Group>,
    /// The group of each thread, and when it is ready again.
    threads: Vec<(usize, u64)>,
    chance: Chance,
}

impl World {
    fn new(seed: u64) -> (World, usize) {
        let mut chance = Chance::new(seed);
        let cpus = chance.between(1, 4) as usize;
        let mut groups = Vec::new();
        for number in 0..chance.between(1, 5) {
            let period = chance.between(5, 200) * 1000;
            let quota = match chance.between(0, 3) {
                0 => NONE,
                _ => chance.between(period / 20, period * cpus as u64),
            };
            let burst = if chance.one_in(3) { period / 10 } else { 0 };
            let is_inner = number > 0 && chance.one_in(2);
            groups.push(Group {
                quota: Quota::new(period, quota, burst, 0),
                above: is_inner.then(|| chance.between(0, number - 1) as usize),
                ran_ns: 0,
                periods: vec![0],
            });
        }
        let last = groups.len() as u64 - 1;
        let threads = (0..chance.between(1, 12)).map(|_| (chance.between(0, last) as usize, 0));
        let threads = threads.collect();
        (
            World {
                groups,
                threads,
                chance,
            },
            cpus,
        )
    }

    fn path(&self, group: usize) -> Vec<usize> {
        std::iter::successors(Some(group), |&at| self.groups[at].above).collect()
    }

    /// What is left for a group, and until when it waits if that is nothing.
    fn least(&mut self, group: usize, now: u64) -> (i64, u64) {
        let (mut least, mut until) = (i64::MAX, now);
        for at in self.path(group) {
            let quota = &mut self.groups[at].quota;
            if quota.quota_ns == 0 {
                continue;
            }
            let left = quota.left(now);
            least = least.min(left);
            if left <= 0 {
                until = until.max(quota.end_ns);
            }
        }
        (least, until)
    }

    /// A turn of the thread that waits longest and may run. When does the CPU look again?
    fn turn(&mut self, now: u64) -> u64 {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        order.sort_by_key(|&i| self.threads[i].1);
        let mut look = now + MS;
        for i in order {
            let (group, ready) = self.threads[i];
            let (left, until) = self.least(group, now);
            if ready > now || left <= 0 {
                look = look.min(until.max(ready).max(now + 1));
                continue;
            }
            let ns = turn(left) + self.chance.between(0, LATE_NS);
            for at in self.path(group) {
                self.groups[at].quota.charge(ns);
                self.groups[at].ran_ns += ns;
                // Without a limit there is no period.
                if let Some(period) = now.checked_div(self.groups[at].quota.period_ns) {
                    let periods = &mut self.groups[at].periods;
                    let period = period as usize;
                    periods.resize(periods.len().max(period + 1), 0);
                    periods[period] += ns;
                }
            }
            self.threads[i].1 = now + ns;
            return now + ns;
        }
        look
    }

    /// Whether threads of a group that only its own quota limits always want the CPU.
    fn is_hungry(&self, group: usize, cpus: usize) -> bool {
        let inside = |&&(at, _): &&(usize, u64)| self.path(at).contains(&group);
        let wanting = self.threads.iter().filter(inside);
        let only_it = |&(at, _): &(usize, u64)| {
            let path = self.path(at);
            path.iter()
                .all(|&at| at == group || self.groups[at].quota.quota_ns == 0)
        };
        let free = wanting.filter(|thread| only_it(thread)).count();
        free >= cpus && free == self.threads.len()
    }
}

#[test]
fn no_group_has_more_than_its_quota_or_less_while_it_wants_more() {
    let first = std::env::var("ECALLS_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut hungry = 0;
    for seed in first..first + 300 {
        let (mut world, cpus) = World::new(seed);
        let mut at = vec![0; cpus];
        while let Some(cpu) = (0..cpus)
            .filter(|&cpu| at[cpu] < WHOLE_NS)
            .min_by_key(|&c| at[c])
        {
            at[cpu] = world.turn(at[cpu]);
        }
        let over = cpus as u64 * (TURN_NS + LATE_NS);
        for (number, group) in world.groups.iter().enumerate() {
            let Quota {
                quota_ns,
                period_ns,
                burst_ns,
                ..
            } = group.quota;
            if quota_ns == 0 {
                continue;
            }
            // Debts beyond the limit are forgiven: quotas of less than a turn on each CPU.
            if quota_ns * DEBT < over {
                continue;
            }
            let most = (WHOLE_NS / period_ns + 1) * quota_ns + burst_ns + over;
            assert!(
                group.ran_ns <= most,
                "seed {seed}: group {number} had {} ns of {most}",
                group.ran_ns
            );
            let greatest = group.periods.iter().max().expect("one");
            let most = quota_ns + burst_ns + over;
            assert!(
                *greatest <= most,
                "seed {seed}: group {number} had {greatest} ns of {most} in a period"
            );
            if world.is_hungry(number, cpus) {
                hungry += 1;
                let least = (WHOLE_NS / period_ns * quota_ns).min(WHOLE_NS * cpus as u64) * 9 / 10;
                assert!(
                    group.ran_ns >= least,
                    "seed {seed}: group {number} had {} ns, not {least}",
                    group.ran_ns
                );
            }
        }
    }
    assert!(hungry >= 10, "{hungry} groups that wanted more");
}
