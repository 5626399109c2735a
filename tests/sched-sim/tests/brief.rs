//! A thread that slept as soon as it had woken another one is believed to do so again: it is
//! preempted by who wakes next (brief.h).

use sched_sim::machine::Machine;
use sched_sim::ordinary::Link;
use sched_sim::policy::{Cpu, NOBODY, Options, PLAIN, Plain, Queue};
use sched_sim::thread::Spec;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const EMPTY: Queue = Queue { vtime: 0, count: 0 };

/// `BRIEF_TURNS`.
const BRIEFS: u32 = 64;

fn plain(vtime: u64) -> Plain {
    Plain {
        vtime,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    }
}

/// A thread's turn from 0 on: another one wakes at each of these times, and does not preempt it.
/// Then it sleeps, or waits. Nobody else wants the CPU after that.
fn after(wakes_ns: &[u64], waits: bool, end_ns: u64) -> Cpu {
    let mut cpu = Cpu::new(&Options::default());
    cpu.start(PLAIN, Some(&plain(0)), 0);
    cpu.woke();
    for &at in wakes_ns {
        let mut other = plain(0);
        cpu.ready_plain(&mut other, at);
        assert!(!cpu.preempts_plain(&other, 0, at), "it goes on at {at}");
    }
    if waits {
        cpu.stop(end_ns);
    } else {
        cpu.stop_for_good(end_ns);
    }
    cpu.choose(end_ns, &EMPTY);
    cpu
}

/// Its next turn, a millisecond later, and another thread that wakes within it, at a virtual time
/// so much beyond its own: whether it preempts.
fn gives_way(cpu: &mut Cpu, thread: &Plain, beyond_ns: u64) -> bool {
    let now = cpu.charged_ns + MS;
    cpu.start(PLAIN, Some(thread), now);
    cpu.woke();
    let mut other = plain(thread.vtime + 10 * US + beyond_ns);
    cpu.ready_plain(&mut other, now + 10 * US);
    cpu.preempts_plain(&other, now, now + 10 * US)
}

#[test]
fn a_thread_that_slept_once_it_had_woken_another_one_makes_way_for_the_next_ones() {
    for (wakes_ns, waits, end_ns, is_brief) in [
        (&[20 * US][..], false, 50 * US, true),
        (&[20 * US], false, 119 * US, true),
        (&[20 * US], false, 120 * US, false),
        (&[20 * US], true, 50 * US, false),
        (&[20 * US, 30 * US], false, 50 * US, false),
        (&[], false, 50 * US, false),
    ] {
        let mut cpu = after(wakes_ns, waits, end_ns);
        let thread = cpu.plain;
        let gives_way = gives_way(&mut cpu, &thread, 0);
        assert_eq!(gives_way, is_brief, "{wakes_ns:?}, {waits}, {end_ns}");
    }
}

#[test]
fn it_does_so_for_who_is_first_and_not_far_ahead_where_no_entity_is_ready() {
    let make = || after(&[20 * US], false, 50 * US);
    let thread = make().plain;
    assert!(gives_way(&mut make(), &thread, MS));
    assert!(!gives_way(&mut make(), &thread, MS + 1), "it is ahead");

    let mut cpu = make();
    for mut waits in [plain(0), thread] {
        cpu.ready_plain(&mut waits, 50 * US);
    }
    assert!(!gives_way(&mut cpu, &thread, 0), "another one is first");

    let mut cpu = make();
    let entity = cpu.add(100, NOBODY);
    assert!(gives_way(&mut cpu.clone(), &thread, 0), "it sleeps");
    cpu.ready(entity, 50 * US);
    assert!(!gives_way(&mut cpu, &thread, 0), "an entity is ready");
}

#[test]
fn it_has_to_show_it_again_after_some_turns() {
    let mut cpu = after(&[20 * US], false, 50 * US);
    let mut thread = cpu.plain;
    for turn in 0..=BRIEFS {
        assert_eq!(gives_way(&mut cpu, &thread, 0), turn < BRIEFS, "{turn}");
        let now = cpu.charged_ns;
        cpu.stop(now);
        thread = cpu.plain;
        cpu.choose(now, &EMPTY);
    }
    // In the last of these turns somebody woke, and it did not sleep.
    assert_eq!(thread.brief, 0);
}

/// As by a pipe that holds one message: who has taken it wakes the writer, finds the pipe empty,
/// and sleeps; the writer the same. If each is preempted there, the other one is still ready when
/// its message comes.
#[test]
fn two_threads_that_hand_a_message_to_and_fro_wake_for_every_second_one() {
    let mut machine = Machine::new(1, 0, &Options::default());
    for i in 0..2 {
        let other = (1 - i, 1 - i);
        machine.add(
            Spec::plain(0),
            0,
            Link::new(1 + i as u64, other, 20 * US, i),
        );
    }
    machine.run_until(SECOND).expect("it keeps its rules");
    let (mut wakes, mut messages) = (0, 0);
    for i in 0..2 {
        wakes += machine.figures(i).wakes;
        messages += machine.figures(i).frames;
    }
    println!("{wakes} wake-ups, {messages} messages");
    assert!(messages > 50_000);
    assert!(10 * wakes < 6 * messages, "{wakes} of {messages}");
}
