//! The scheduler and threads that lie to it: whatever one writes into its slot, asks for or does to
//! its memory, the hog beside it gets its share, and so does a thread that keeps the rules. Needs
//! root and a kernel with sched_ext, so it runs in the test machine.
//!
//! All threads of a case are on one CPU, and shares are compared, not times. A case is tried once:
//! in the steady mode of the test machine the clock counts instructions, so no CPU stands still.

mod harness;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ecalls::{Admission, Channel, Window, now_ns};
use ecalls_abi::coop::{COOP_NONE, COOP_POLLING};
use ecalls_abi::sched::SchedCount;
use harness::stage::{Ends, MS, Poller, Stage, burn, pin, spin, start, window, windowed};
use harness::wait_until;

/// Of each case. What a lie can gain, 20 ms, is little beside it.
const CASE: Duration = Duration::from_secs(1);
/// A share is at least so much of another one that should be the same.
const NEARLY: f64 = 0.9;

/// One of the three rules.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Overran,
    Slept,
    Ahead,
}

impl Rule {
    /// How often it was broken on all CPUs.
    fn counted(self, count: &SchedCount) -> u64 {
        match self {
            Rule::Overran => count.overran,
            Rule::Slept => count.slept,
            Rule::Ahead => count.ahead,
        }
    }
}

/// What a thread does again and again, with some work each time.
type Lie = fn(&mut Poller, &Channel);

fn work() {
    burn(MS / 5);
}

/// Leaves the poll, as an honest thread does.
fn end_poll(poller: &Poller) {
    poller.word(3).store(0, Ordering::Relaxed);
}

/// The lies, and the rule by which the thread is policed that tells one. None: it gains nothing
/// that would have to be policed.
const LIES: &[(&str, Option<Rule>, Lie)] = &[
    (
        "its release is always now",
        Some(Rule::Ahead),
        |poller, _| {
            poller.poll(now_ns(), COOP_NONE);
            work();
        },
    ),
    (
        "its release was long ago",
        Some(Rule::Ahead),
        |poller, _| {
            poller.poll(1, COOP_NONE);
            work();
        },
    ),
    ("its release is the last moment", None, |poller, _| {
        poller.poll(COOP_NONE - 1, 1);
        work();
    }),
    (
        "its release is where time wraps around",
        None,
        |poller, _| {
            poller.poll((1 << 63) + now_ns(), 1);
            work();
        },
    ),
    ("its release is in a year", None, |poller, _| {
        poller.poll(now_ns() + 365 * 86_400_000 * MS, 1);
        work();
    }),
    ("nothing is as important", None, |poller, _| {
        poller.poll(COOP_NONE, 0);
        work();
    }),
    ("its virtual time is huge", None, |poller, _| {
        poller.poll(COOP_NONE, COOP_NONE - 1);
        work();
    }),
    (
        "it polls once, and works on",
        Some(Rule::Overran),
        |poller, _| {
            poller.poll(COOP_NONE, 1);
            burn(40 * MS);
            thread::yield_now();
        },
    ),
    (
        "it polls and does not count it",
        Some(Rule::Slept),
        |poller, _| {
            poller.poll(COOP_NONE, 1);
            poller.word(3).store(COOP_POLLING.into(), Ordering::Relaxed);
            work();
            // The poll of before, not another one.
            thread::sleep(Duration::from_micros(100));
            end_poll(poller);
        },
    ),
    (
        "it sleeps without a poll",
        Some(Rule::Slept),
        |poller, _| {
            poller.poll(now_ns(), 1);
            thread::sleep(Duration::from_micros(100));
            work();
        },
    ),
    ("it counts polls and never yields", None, |poller, _| {
        poller.publish(now_ns(), 0);
        work();
    }),
    ("it counts backwards", Some(Rule::Ahead), |poller, _| {
        poller.polls = if poller.polls < 2 {
            1 << 20
        } else {
            poller.polls - 2
        };
        poller.poll(now_ns(), 0);
        work();
    }),
    (
        "it names its slot anew each time",
        None,
        |poller, channel| {
            *poller = Poller::new(channel, 0, 0);
            poller.poll(now_ns(), 0);
            work();
        },
    ),
    ("it changes its group each time", None, |poller, channel| {
        *poller = Poller::new(channel, 0, (now_ns() / MS % 7) as u32 + 1);
        poller.poll(now_ns(), 0);
        work();
    }),
    ("it asks for a window each time", None, |poller, channel| {
        let greedy = Window {
            period: Duration::from_millis(10),
            service: Duration::from_millis(10),
            x: 0,
            y: 1,
            conserving: true,
        };
        let _ = channel.caller().window(&poller.slot, &greedy);
        poller.poll(now_ns(), 0);
        work();
    }),
];

/// CPU time of the liar, of the hog, and of a thread that keeps the rules; and the liar's offences.
fn beside(stage: &Stage, lie: Lie) -> ([u64; 3], [u64; 3]) {
    let (theirs, ours) = (stage.channel(), stage.channel());
    let (stop, end) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let honest = scope.spawn(|| {
            pin();
            let mut poller = Poller::new(&ours, 0, 0);
            while !stop.load(Ordering::Relaxed) {
                poller.poll(COOP_NONE, 1);
                work();
            }
            spin(stop)
        });
        let liar = scope.spawn(|| {
            pin();
            let mut poller = Poller::new(&theirs, 0, 0);
            poller.poll(COOP_NONE, 1);
            while !end.load(Ordering::Relaxed) {
                lie(&mut poller, &theirs);
            }
            (spin(end), poller.offences())
        });
        thread::sleep(CASE);
        // The liar first: alone it would have all of the CPU until its last lie is told.
        end.store(true, Ordering::Relaxed);
        let (had, offences) = liar.join().expect("joined");
        stop.store(true, Ordering::Relaxed);
        let others = [hog, honest].map(|thread| thread.join().expect("joined"));
        ([had, others[0], others[1]], offences)
    })
}

/// The hog and who keeps the rules have as much as the liar, and he no more than the hog.
fn assert_fair(name: &str, [liar, hog, honest]: [u64; 3]) {
    let told = format!("{name}: liar {liar} ns, hog {hog}, honest {honest}");
    println!("{told}");
    let nearly = |one: u64, other: u64| one as f64 >= other as f64 * NEARLY;
    // Who is begun first may have more, and the hog is.
    assert!(nearly(hog, liar) && nearly(honest, liar), "{told}");
    assert!(nearly(hog, honest), "{told}");
}

#[test]
fn no_lie_in_a_slot_brings_more_than_a_share() {
    let Some(stage) = start() else { return };
    for (name, rule, lie) in LIES {
        let before = stage.counts();
        let (had, offences) = beside(&stage, *lie);
        println!("{name}: overran, slept, ahead {offences:?}");
        assert_fair(name, had);
        let after = stage.counts();
        let Some(rule) = *rule else { continue };
        let broke = offences[rule as usize];
        assert!(broke > 0, "{name}: {rule:?} of {offences:?}");
        let counted = rule.counted(&after) - rule.counted(&before);
        assert!(counted >= broke, "{name}: {counted} counted of {broke}");
    }
    stage.end();
}

#[test]
fn two_threads_of_one_slot_have_a_share_each_and_no_more() {
    let Some(stage) = start() else { return };
    let channel = &stage.channel();
    let stop = &AtomicBool::new(false);
    let (hog, sharers) = thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let sharers = [(); 2].map(|()| {
            scope.spawn(|| {
                pin();
                let mut poller = Poller::new(channel, 0, 0);
                while !stop.load(Ordering::Relaxed) {
                    // Each answers for what the other one wrote, too.
                    poller.publish(now_ns(), 0);
                    thread::yield_now();
                    work();
                }
                spin(stop)
            })
        });
        thread::sleep(CASE);
        stop.store(true, Ordering::Relaxed);
        let sharers = sharers.map(|thread| thread.join().expect("joined"));
        (hog.join().expect("joined"), sharers)
    });
    for had in sharers {
        assert_fair("a slot of two", [had, hog, hog]);
    }
    stage.end();
}

#[test]
fn a_slot_that_changes_while_it_is_read_harms_nobody() {
    let Some(stage) = start() else { return };
    let channel = &stage.channel();
    // The first call loads its part of the core, which would count as the liar's CPU time.
    thread::scope(|scope| scope.spawn(|| drop(Poller::new(channel, 1, 0))).join()).expect("a call");
    let stop = &AtomicBool::new(false);
    let (slot, slots) = std::sync::mpsc::channel();
    let shares = thread::scope(|scope| {
        // On any other CPU, if there is one.
        scope.spawn(move || {
            let poller: Poller = slots.recv().expect("a slot");
            let mut random = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                for word in 0..16 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    poller.word(word).store(random, Ordering::Relaxed);
                }
            }
        });
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let liar = scope.spawn(move || {
            pin();
            let poller = Poller::new(channel, 0, 0);
            slot.send(Poller::new(channel, 0, 0)).expect("sent");
            while !stop.load(Ordering::Relaxed) {
                poller.word(3).store(COOP_POLLING.into(), Ordering::Relaxed);
                thread::yield_now();
                work();
            }
            spin(stop)
        });
        thread::sleep(CASE);
        stop.store(true, Ordering::Relaxed);
        [liar, hog].map(|thread| thread.join().expect("joined"))
    });
    // The one that writes may be on the first CPU for a while, too.
    assert_fair("a slot that changes", [shares[0], shares[1], shares[1]]);
    stage.end();
}

#[test]
fn a_thread_whose_channel_is_gone_goes_on_like_any_other() {
    let Some(stage) = start() else { return };
    let stop = &AtomicBool::new(false);
    let shares = thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let bereft = scope.spawn(|| {
            pin();
            let channel = stage.channel();
            let mut poller = Poller::new(&channel, 0, 0);
            poller.poll(now_ns(), 0);
            // Its memory is unmapped with the last of both.
            drop(poller);
            drop(channel);
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
                work();
            }
            spin(stop)
        });
        thread::sleep(CASE);
        stop.store(true, Ordering::Relaxed);
        [bereft, hog].map(|thread| thread.join().expect("joined"))
    });
    assert_fair("without a channel", [shares[0], shares[1], shares[1]]);
    stage.end();
}

#[test]
fn a_window_with_absurd_numbers_is_refused() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    let before = stage.counts();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            let slot = channel.caller().coop_slot(0, 0).expect("a slot");
            let ns = Duration::from_nanos;
            for (period, service, x, y) in [
                (ns(0), ns(0), 0, 1),
                (ns(1), ns(1), 0, 1),
                (ns(99_999), ns(1), 0, 1),
                (ns(u64::MAX), ns(1), 0, 1),
                (Duration::MAX, Duration::MAX, 0, 1),
                (ns(10_000_000), ns(0), 0, 1),
                (ns(10_000_000), ns(10_000_001), 0, 1),
                (ns(10_000_000), ns(u64::MAX), 0, 1),
                (ns(10_000_000), ns(1_000_000), 0, 0),
                (ns(10_000_000), ns(1_000_000), 1, 1),
                (ns(10_000_000), ns(1_000_000), 2, 1),
                (ns(10_000_000), ns(1_000_000), 1, 1025),
                (ns(10_000_000), ns(1_000_000), u16::MAX, u16::MAX),
                // Possible, and more than there is.
                (ns(10_000_000), ns(10_000_000), 0, 1),
            ] {
                let wish = Window {
                    period,
                    service,
                    x,
                    y,
                    conserving: true,
                };
                match channel.caller().window(&slot, &wish) {
                    Err(_) | Ok(Admission::Refused { .. }) => {}
                    Ok(answer) => panic!("{wish:?}: {answer}"),
                }
            }
        });
    });
    assert_eq!(stage.counts().windows, before.windows, "none was admitted");
    stage.end();
}

/// Threads that name a slot, one after the other: more than a table of them would hold.
const NAMERS: usize = 5000;

#[test]
fn who_names_slots_with_thousands_of_threads_takes_nobodys_away() {
    let Some(stage) = start() else { return };
    let (channel, stop) = (&stage.channel(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = Ends(stop);
        let wish = window(10_000, 1_000, 0, 1);
        let (answer, _) = windowed(scope, channel, 0, wish, move |_| {
            // It polls no more: nobody looks its slot up.
            while !stop.load(Ordering::Relaxed) {
                burn(MS / 5);
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert_eq!(answer, Admission::Promised);
        let attacker = stage.channel();
        for _ in 0..NAMERS {
            let caller = attacker.caller().clone();
            let namer = thread::spawn(move || {
                let _slot = caller.coop_slot(1, 0).expect("a slot");
                // Now the scheduler looks it up.
                thread::yield_now();
            });
            namer.join().expect("joined");
        }
        // Another scheduler has to look.
        let again = stage.restart(Duration::ZERO);
        wait_until("its window is as it was", || again.total().windows == 1);
        again.end();
    });
}

#[test]
fn children_are_plain_though_their_parent_polls() {
    let Some(stage) = start() else { return };
    let channel = stage.channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            let mut poller = Poller::new(&channel, 0, 0);
            poller.poll(now_ns(), 0);
            let entered = stage.counts().entered;
            // A thread, and a process: both run, yield and sleep like any other.
            let threads = [(); 3].map(|()| {
                thread::spawn(|| {
                    for _ in 0..20 {
                        thread::yield_now();
                        thread::sleep(Duration::from_micros(200));
                    }
                })
            });
            for _ in 0..3 {
                let mut shell = std::process::Command::new("sh");
                let ended = shell.args(["-c", "sleep 0.01"]).status().expect("started");
                assert!(ended.success());
            }
            for thread in threads {
                thread.join().expect("joined");
            }
            let count = stage.counts();
            assert_eq!(count.entered, entered, "only who named a slot polls by one");
        });
    });
    stage.end();
}

#[test]
fn threads_that_begin_when_the_last_one_ends_have_one_share() {
    let Some(stage) = start() else { return };
    let had = || spin(&AtomicBool::new(true));
    let stop = &AtomicBool::new(false);
    let (hog, own, links) = thread::scope(|scope| {
        let hog = scope.spawn(|| {
            pin();
            spin(stop)
        });
        let chain = scope.spawn(move || {
            pin();
            let mut links = 0;
            while !stop.load(Ordering::Relaxed) {
                let link = thread::spawn(move || {
                    while had() < 4 * MS {}
                    had()
                });
                links += link.join().expect("joined");
            }
            (had(), links)
        });
        thread::sleep(CASE);
        stop.store(true, Ordering::Relaxed);
        let (own, links) = chain.join().expect("joined");
        (hog.join().expect("joined"), own, links)
    });
    // Who makes them has a share, too, and uses little of it.
    println!("who makes the links {own}");
    assert_fair("a chain", [links, hog, hog]);
    stage.end();
}
