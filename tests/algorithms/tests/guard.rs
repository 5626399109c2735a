//! The rule of the guard against overload (bpf/lib/guard.h), with a simulated server: it accepts
//! one connection after another and takes its time for each.

use std::collections::VecDeque;

use algorithms::{Look, Pace, full};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const TARGET_NS: u64 = 50 * MS;
/// Ages are known in steps of this, as with CONFIG_HZ=250.
const TICK_NS: u64 = 4 * MS;

/// A server and its queue.
#[derive(Default)]
struct Server {
    now_ns: u64,
    page_ns: u64,
    /// When it has time for the next connection.
    free_ns: u64,
    /// When each connection in the queue came.
    queue: VecDeque<u64>,
    accepted: u64,
    /// The waits of those that were accepted.
    waits_ns: Vec<u64>,
    /// Handshakes of a flood, which never end.
    begun: u64,
    refused: u64,
    refuses: bool,
    pace: Pace,
}

impl Server {
    fn advance(&mut self, now_ns: u64) {
        while let Some(&came_ns) = self.queue.front() {
            let at_ns = came_ns.max(self.free_ns);
            if at_ns > now_ns {
                break;
            }
            self.queue.pop_front();
            self.waits_ns.push(at_ns - came_ns);
            self.accepted += 1;
            self.free_ns = at_ns + self.page_ns;
        }
        self.now_ns = now_ns;
    }

    /// A SYN comes: whether it is refused.
    fn refuses(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        let ticks = |ns: u64| ns / TICK_NS;
        let age = |&came_ns: &u64| ((ticks(now_ns) - ticks(came_ns)) * TICK_NS).max(1);
        let look = Look {
            now_ns,
            age_ns: self.queue.front().map_or(0, age),
            accepted: self.accepted,
            queued: self.queue.len() as u64,
            begun: self.begun,
        };
        let wait_ns = full().guard_wait(&mut self.pace, &look, TICK_NS);
        self.refuses = (full().guard_refuses)(self.refuses, wait_ns, look.age_ns, TARGET_NS);
        self.refuses
    }

    /// A connection comes: the server gets it, or not.
    fn come(&mut self, now_ns: u64) {
        if self.refuses(now_ns) {
            self.refused += 1;
        } else {
            self.queue.push_back(now_ns);
        }
    }

    /// Connections that come every `gap_ns` for `time_ns`.
    fn load(&mut self, gap_ns: u64, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        let mut at_ns = self.now_ns;
        while at_ns < end_ns {
            at_ns += gap_ns;
            self.come(at_ns);
        }
    }

    /// Twice as many as it has time for, as long as the last one still waits for less than the
    /// target.
    fn burst(&mut self, at_ns: u64) {
        for number in 0..TARGET_NS * 2 / self.page_ns * 8 / 10 {
            self.come(at_ns + number * self.page_ns / 2);
        }
    }

    /// Refused from now on.
    fn bursts(&mut self, count: u64) -> u64 {
        let (begin_ns, refused) = (self.now_ns, self.refused);
        for burst in 1..=count {
            self.burst(begin_ns + burst * 300 * MS);
        }
        self.refused - refused
    }
}

proptest! {
    #[test]
    fn overloaded_server_is_busy_and_nobody_waits_long(
        page_us in 200u64..20_000,
        load_percent in 150u64..2_000,
    ) {
        let page_ns = page_us * 1000;
        let mut server = Server { page_ns, free_ns: 1, now_ns: 1, ..Server::default() };
        let gap_ns = page_ns * 100 / load_percent;
        // What comes before the pace is known may wait longer.
        server.load(gap_ns, 1000 * MS);
        server.waits_ns.clear();
        server.load(gap_ns, 10_000 * MS);
        let busy_ns = server.waits_ns.len() as u64 * page_ns;
        prop_assert!(busy_ns >= 9_500 * MS, "busy for {} ms of 10 s", busy_ns / MS);
        let longest_ns = server.waits_ns.iter().max().copied().unwrap_or_default();
        prop_assert!(longest_ns <= 2 * TARGET_NS + page_ns, "waited {} us", longest_ns / 1000);
    }

    #[test]
    fn server_with_time_refuses_none(page_us in 200u64..20_000, load_percent in 1u64..95) {
        let page_ns = page_us * 1000;
        let mut server = Server { page_ns, free_ns: 1, now_ns: 1, ..Server::default() };
        server.load(page_ns * 100 / load_percent, 10_000 * MS);
        prop_assert_eq!(server.refused, 0);
    }

    #[test]
    fn burst_that_is_served_in_time_is_admitted(page_us in 200u64..2_000) {
        let page_ns = page_us * 1000;
        let mut server = Server { page_ns, free_ns: 1, now_ns: 1, ..Server::default() };
        prop_assert_eq!(server.bursts(20), 0);
    }

    #[test]
    fn cheaper_pages_are_noticed(
        former_us in 5_000u64..20_000,
        page_us in 200u64..1_000,
        is_quiet in any::<bool>(),
    ) {
        let mut server = Server {
            page_ns: former_us * 1000, free_ns: 1, now_ns: 1, ..Server::default()
        };
        server.load(former_us * 300, 3_000 * MS);
        prop_assert!(server.refused > 0);
        // All that waits has to wait for the costly page that is in work.
        server.advance(server.now_ns + if is_quiet { 2_000 } else { 500 } * MS);
        server.page_ns = page_us * 1000;
        let refused = server.refused;
        // The pace is an old one, but nobody has waited yet.
        for _ in 0..5 {
            server.come(server.now_ns);
        }
        prop_assert_eq!(server.refused, refused);
        let refused = server.bursts(3);
        prop_assert!(!is_quiet || refused == 0, "after a quiet time: {refused} refused");
        prop_assert_eq!(server.bursts(10), 0);
    }
}

#[test]
fn server_that_accepts_no_more_is_noticed() {
    let mut server = Server {
        page_ns: u64::MAX / 2,
        free_ns: 1,
        now_ns: 1,
        ..Server::default()
    };
    server.load(10 * MS, 2_000 * MS);
    assert!(server.queue.len() < 10, "{} wait", server.queue.len());
    assert!(server.refused > 180, "{} refused", server.refused);
}

#[test]
fn handshakes_that_never_end_are_no_work_of_the_server() {
    let mut server = Server {
        page_ns: 20 * MS,
        free_ns: 1,
        begun: 1000,
        ..Server::default()
    };
    for at_ms in 0..3000 {
        let at_ns = 1 + at_ms * MS;
        if matches!(at_ms % 150, 0 | 1 | 2 | 30) {
            server.come(at_ns);
        } else {
            let _ = server.refuses(at_ns);
        }
    }
    assert_eq!(server.refused, 0);
}

/// Seven come at once, when the first of seven before them was accepted 150 ms ago.
#[test]
fn idle_time_is_no_pace_though_a_look_finds_one_queued_and_not_established() {
    let mut pace = Pace::default();
    let mut wait = |now_ms: u64, age_ms: u64, accepted, queued| {
        let look = Look {
            now_ns: now_ms * MS,
            age_ns: age_ms * MS,
            accepted,
            queued,
            begun: queued,
        };
        full().guard_wait(&mut pace, &look, TICK_NS)
    };
    for accepted in 0..7 {
        wait(
            1000 + accepted * 4,
            1 + accepted * 4,
            accepted,
            7 - accepted,
        );
    }
    assert_eq!(wait(1030, 0, 7, 0), 0);
    wait(1150, 1, 7 - 1, 1); // 7 were accepted, and one more is not established yet
    let wait_ns = wait(1168, 16, 7 + 4, 3);
    assert!(wait_ns <= TARGET_NS, "{} ms", wait_ns / MS);
}

#[test]
fn looks_that_come_in_another_order_mislead_nobody() {
    let mut pace = Pace::default();
    let look = |now_ms: u64, accepted: u64| Look {
        now_ns: now_ms * MS,
        age_ns: 20 * MS,
        accepted,
        queued: 100,
        begun: 0,
    };
    let mut wait =
        |now_ms, accepted| full().guard_wait(&mut pace, &look(now_ms, accepted), TICK_NS);
    for step in 0..100 {
        // Two CPUs: the later look is taken into account first. The server accepts one each ms.
        let (earlier, later) = (1000 + step * 10, 1005 + step * 10);
        let waits = [wait(later, later + 1), wait(earlier, later + 2)];
        let longest_ns = waits.into_iter().max().unwrap_or_default();
        assert!(longest_ns <= 200 * MS, "{step}: {waits:?}");
    }
    // A server that has accepted hardly anything for a day.
    let (day_ms, queued) = (24 * 3600 * 1000, 100);
    assert!(wait(day_ms, 2000) <= queued * 60_000 * MS);
}
