//! One test for each rule of the fair share, of release times, of groups and of policing, named
//! after the rule. Each sets a CPU up by hand; what many threads do over time is the simulator's.

use sched_sim::policy::{
    Admission, Choice, Cpu, NEVER, NOBODY, Options, PLAIN, Plain, Queue, Window, moved, why,
};

const MS: u64 = 1_000_000;
const EMPTY: Queue = Queue { vtime: 0, count: 0 };

fn cpu() -> Cpu {
    Cpu::new(&Options::default())
}

/// A CPU whose last thread has gone with this virtual time.
fn cpu_at(vtime: u64) -> Cpu {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(vtime)), 0);
    cpu.stop_for_good(0);
    cpu
}

fn plain(vtime: u64) -> Plain {
    Plain {
        vtime,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    }
}

fn waiting(vtime: u64, count: u64) -> Queue {
    Queue { vtime, count }
}

/// An entity that waits.
fn thread(cpu: &mut Cpu, group: u32, now: u64) -> u32 {
    let i = cpu.add(100, group);
    cpu.ready(i, now);
    i
}

/// Lets an entity run for a time, poll, and wait again.
fn polls_after(cpu: &mut Cpu, i: u32, from: u64, ns: u64, release: u64, importance: u64) -> u64 {
    cpu.start(i, None, from);
    cpu.poll(i, from + ns, release, importance);
    cpu.stop(from + ns);
    from + ns
}

/// An entity that has polled and sleeps until its release.
fn sleeper(cpu: &mut Cpu, now: u64, release: u64) -> u32 {
    let i = thread(cpu, NOBODY, now);
    polls_after(cpu, i, now, 0, release, NEVER);
    cpu.sleep(i, now);
    i
}

#[test]
fn least_virtual_time_runs() {
    let mut cpu = cpu();
    let (a, b) = (thread(&mut cpu, NOBODY, 0), thread(&mut cpu, NOBODY, 0));
    cpu.start(a, None, 0);
    cpu.stop(MS);
    assert_eq!(cpu.choose(MS, &EMPTY).who, b);
    assert_eq!(cpu.choose(MS, &waiting(0, 1)).who, PLAIN, "first come");
    cpu.start(b, None, MS);
    cpu.stop(3 * MS);
    assert_eq!(cpu.choose(3 * MS, &waiting(MS + 1, 1)).who, a);
    assert_eq!(cpu.choose(3 * MS, &waiting(MS - 1, 1)).who, PLAIN);
}

#[test]
fn virtual_time_advances_by_weight() {
    let mut cpu = cpu();
    let heavy = cpu.add(200, NOBODY);
    cpu.ready(heavy, 0);
    cpu.start(heavy, None, 0);
    cpu.stop(4 * MS);
    assert_eq!(cpu.entity(heavy).vtime, 2 * MS);
}

#[test]
fn running_thread_keeps_the_cpu_while_it_has_had_least() {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(0)), 0);
    let keeps = cpu.choose(MS, &waiting(MS, 1));
    assert_eq!((keeps.who, keeps.keep), (PLAIN, 1));
    let yields = cpu.choose(MS + 1, &waiting(MS, 1));
    assert_eq!((yields.who, yields.keep), (PLAIN, 0));
}

#[test]
fn sleeping_entity_saves_nothing_up_and_a_plain_thread_a_little() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    cpu.start(PLAIN, Some(&plain(0)), 0);
    cpu.sleep(a, 0);
    cpu.ready(a, 50 * MS);
    assert_eq!(cpu.entity(a).vtime, 40 * MS, "the other one was alone");
    let mut late = plain(0);
    cpu.ready_plain(&mut late, 50 * MS);
    assert_eq!(late.vtime, 36 * MS, "4 ms of CPU time");
    let mut light = Plain {
        weight: 25,
        ..plain(0)
    };
    cpu.ready_plain(&mut light, 50 * MS);
    assert_eq!(light.vtime, 24 * MS, "the same");
    let mut ahead = plain(39 * MS);
    cpu.ready_plain(&mut ahead, 50 * MS);
    assert_eq!(ahead.vtime, 39 * MS, "it has used up a part of that");
}

/// Hundreds may wait with the least virtual time, which have begun at the same time.
#[test]
fn new_thread_goes_before_all_that_wait() {
    let mut cpu = cpu_at(10 * MS);
    let mut first = plain(10 * MS);
    cpu.ready_plain(&mut first, 0);
    cpu.choose(0, &waiting(10 * MS, 1));
    let mut new = plain(cpu.begins());
    cpu.ready_plain(&mut new, 0);
    assert_eq!(new.vtime, 10 * MS - 1);
}

#[test]
fn sleeper_does_not_lose_what_it_had_too_much() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    cpu.start(a, None, 0);
    cpu.stop(10 * MS);
    cpu.sleep(a, 10 * MS);
    cpu.choose(10 * MS, &waiting(0, 1));
    cpu.ready(a, 10 * MS);
    assert_eq!(cpu.entity(a).vtime, 10 * MS);
}

#[test]
fn virtual_time_may_wrap_around() {
    let end = u64::MAX - MS;
    let mut cpu = cpu_at(u64::MAX / 2);
    cpu.start(PLAIN, Some(&plain(end)), 0);
    cpu.stop_for_good(0);
    assert_eq!(cpu.choose(0, &waiting(end, 1)).who, PLAIN);
    let a = thread(&mut cpu, NOBODY, 0);
    assert_eq!(cpu.entity(a).vtime, end);
    cpu.start(a, None, 0);
    cpu.stop(3 * MS);
    assert_eq!(cpu.entity(a).vtime, end.wrapping_add(3 * MS), "small");
    assert_eq!(cpu.choose(3 * MS, &waiting(end, 1)).who, PLAIN);
}

#[test]
fn slice_of_an_entity_is_the_period_by_the_number_of_threads() {
    let mut cpu = cpu();
    let i = thread(&mut cpu, NOBODY, 0);
    for (others, slice) in [(0, 20 * MS), (1, 10 * MS), (19, MS), (9999, MS / 10)] {
        cpu.choose(0, &waiting(0, others));
        assert_eq!(cpu.would_run_ns(i, 0), slice, "beside {others}");
    }
}

/// A CPU on which a plain thread runs while others of them wait.
fn busy(others: u64) -> Cpu {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(0)), 0);
    cpu.choose(0, &waiting(0, others));
    cpu
}

#[test]
fn waking_entity_preempts_who_has_had_as_much_and_a_plain_thread_who_has_had_more() {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(0)), 0);
    let a = thread(&mut cpu, NOBODY, MS);
    assert!(cpu.preempts(a, MS));
    assert!(cpu.preempts_plain(&plain(0), 0, 2 * MS));
    assert!(!cpu.preempts_plain(&plain(1), 0, 2 * MS));
}

#[test]
fn first_millisecond_of_a_turn_is_protected_where_one_of_the_two_woke_a_moment_ago() {
    let mut cpu = busy(1);
    let owed = plain(0u64.wrapping_sub(2 * MS));
    let long_ago = 0u64.wrapping_sub(MS);
    assert!(cpu.preempts_plain(&owed, long_ago, 0), "it has slept");
    assert!(!cpu.preempts_plain(&owed, 0, MS - 1), "not for long");
    assert_eq!(cpu.timer(), MS, "its turn comes");
    assert!(cpu.preempts_plain(&owed, MS - 1, MS));
    let mut cpu = busy(1);
    cpu.woke();
    assert!(!cpu.preempts_plain(&owed, long_ago, MS - 1));
    assert_eq!(cpu.timer(), MS);
    assert!(cpu.preempts_plain(&owed, MS - 1, MS));
}

#[test]
fn turn_of_a_plain_thread_is_short_while_others_wait() {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(0)), 0);
    assert_eq!(cpu.timer(), 20 * MS, "alone");
    let mut woken = plain(0);
    cpu.ready_plain(&mut woken, 4 * MS);
    assert!(
        !cpu.preempts_plain(&plain(4 * MS), 0, 4 * MS),
        "it has had as much"
    );
    assert_eq!(cpu.timer(), 5 * MS, "until one wakes");
    cpu.stop(5 * MS);
    cpu.start(PLAIN, Some(&plain(0)), 5 * MS);
    assert_eq!(cpu.timer(), 6 * MS + MS / 2);
}

#[test]
fn thread_that_yields_is_behind_the_first_that_waits() {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(0)), 0);
    cpu.ready_plain(&mut plain(5 * MS), 0);
    assert!(cpu.yields());
    let choice = cpu.choose(MS, &waiting(5 * MS, 1));
    assert_eq!((choice.who, choice.keep), (PLAIN, 0));
    cpu.stop(MS);
    assert!((5 * MS..6 * MS + 2).contains(&cpu.plain.vtime));
    // If the other one has gone to another CPU meanwhile, it continues.
    cpu.start(PLAIN, Some(&plain(0)), MS);
    assert!(cpu.yields());
    assert_eq!(cpu.choose(MS, &waiting(0, 0)).keep, 1);
    // It also does where nobody waits, without being asked. Whoever polls may have to wait.
    assert!(!cpu.yields());
    let polls = cpu.add(100, NOBODY);
    assert!(!cpu.yields());
    cpu.ready(polls, MS);
    assert!(cpu.yields());
    cpu.stop(MS);
    cpu.start(polls, None, MS);
    assert!(cpu.yields());
}

#[test]
fn only_a_thread_that_a_choice_would_take_is_next() {
    let mut cpu = cpu();
    cpu.start(PLAIN, Some(&plain(10 * MS)), 0);
    let mut woken = plain(10 * MS);
    cpu.ready_plain(&mut woken, 0);
    assert!(cpu.is_next(&woken, 0, true));
    assert!(!cpu.is_next(&woken, 1, true), "another one would wait, too");
    // It is ahead of the running thread by more than that has in its shortest turn.
    let mut far = plain(12 * MS);
    cpu.choose(0, &waiting(0, 0));
    cpu.ready_plain(&mut far, 0);
    assert!(!cpu.is_next(&far, 0, true));
    // Two that hand the CPU to each other: who stops is behind the other one...
    cpu.choose(0, &waiting(10 * MS, 1));
    cpu.yields();
    cpu.stop(0);
    let stopped = cpu.plain;
    assert!(cpu.is_next(&stopped, 0, false));
    // ... unless a third one waits, or an entity may.
    cpu.choose(0, &waiting(10 * MS, 2));
    cpu.start(PLAIN, Some(&stopped), 0);
    cpu.choose(0, &waiting(10 * MS, 2));
    cpu.stop(0);
    let stopped = cpu.plain;
    assert!(!cpu.is_next(&stopped, 0, false));
    cpu.choose(0, &waiting(10 * MS, 1));
    cpu.add(100, NOBODY);
    assert!(!cpu.is_next(&woken, 0, true));
}

/// One that comes from another CPU runs at once, and may be far ahead. That is no reason to let
/// those that wake begin far ahead of who waits here, neither then nor when it has gone again.
#[test]
fn thread_that_is_ahead_and_runs_first_leaves_the_least_virtual_time_to_who_waits() {
    let comes_and_runs = |waits: u64| {
        let mut cpu = cpu_at(10 * MS);
        cpu.choose(0, &waiting(10 * MS, waits));
        let mut far = plain(50 * MS);
        cpu.ready_plain(&mut far, 0);
        cpu.start(PLAIN, Some(&far), 0);
        cpu
    };
    let mut cpu = comes_and_runs(1);
    cpu.stop(MS);
    assert_eq!(cpu.vtime, 10 * MS);
    for sleeps in [true, false] {
        let mut cpu = comes_and_runs(2);
        // It sleeps, or another CPU takes it back.
        match sleeps {
            true => cpu.stop_for_good(MS),
            false => cpu.stop(MS),
        }
        cpu.choose(2 * MS, &waiting(20 * MS, 2));
        cpu.start(PLAIN, Some(&plain(20 * MS)), 2 * MS);
        cpu.stop_for_good(7 * MS);
        let least = cpu.vtime;
        assert!(least <= 20 * MS, "the other one has as little: {least}");
    }
}

/// Two threads hand the CPU to each other without a choice, and nobody reports who waits.
#[test]
fn least_virtual_time_follows_two_threads_that_hand_the_cpu_to_each_other() {
    let mut cpu = cpu_at(10 * MS);
    let mut threads = [plain(10 * MS), plain(10 * MS)];
    for thread in &mut threads {
        cpu.ready_plain(thread, 0);
    }
    for turn in 0..10 {
        let thread = &mut threads[turn % 2];
        let now = turn as u64 * MS;
        cpu.start(PLAIN, Some(thread), now);
        cpu.yields();
        cpu.stop(now + MS);
        thread.vtime = cpu.plain.vtime;
    }
    assert!(cpu.vtime > 14 * MS, "{}", cpu.vtime);
}

#[test]
fn moving_thread_takes_along_what_it_had_too_much() {
    assert_eq!(moved(150, 100, 1000), 1050);
    assert_eq!(moved(50, 100, 1000), 1000);
}

#[test]
fn full_table_refuses_and_the_thread_stays_plain() {
    let mut cpu = cpu();
    for i in 0..64 {
        assert_eq!(cpu.add(100, NOBODY), i);
    }
    assert_eq!(cpu.add(100, NOBODY), NOBODY);
    cpu.remove(17);
    assert_eq!(cpu.add(100, NOBODY), 17);
}

#[test]
fn due_release_goes_before_the_least_virtual_time() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 5 * MS);
    let b = sleeper(&mut cpu, 0, 4 * MS);
    cpu.start(PLAIN, Some(&plain(0)), 0);
    cpu.ready(a, 6 * MS);
    cpu.ready(b, 6 * MS);
    let choice = cpu.choose(6 * MS, &waiting(0, 3));
    assert_eq!((choice.who, choice.why), (b, why::RELEASE), "the earliest");
    assert_eq!(cpu.would_run_ns(b, 6 * MS), MS, "0 and the slack");
    cpu.stop(6 * MS);
    cpu.start(b, None, 6 * MS);
    assert_eq!(cpu.slice_end_ns, 6 * MS);
}

#[test]
fn future_release_ends_a_cooperative_threads_slice() {
    let mut cpu = cpu();
    sleeper(&mut cpu, 0, 3 * MS);
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 9 * MS, 1);
    let choice = cpu.choose(0, &EMPTY);
    assert_eq!((choice.who, choice.why), (b, why::FAIR));
    let slice = cpu.would_run_ns(b, 0);
    assert_eq!(slice, 4 * MS, "until the release, and the slack");
    cpu.start(b, None, 0);
    assert_eq!((cpu.slice_end_ns, cpu.limit_ns), (3 * MS, 4 * MS));
    assert_eq!(cpu.timer(), 4 * MS);
}

#[test]
fn waiting_release_ends_a_plain_threads_slice() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, a, 0, 2 * MS, 3 * MS, 1);
    let choice = cpu.choose(2 * MS, &waiting(0, 1));
    assert_eq!(choice.who, PLAIN);
    assert_eq!(cpu.would_run_ns(PLAIN, 2 * MS), MS);
    cpu.start(PLAIN, Some(&plain(0)), 2 * MS);
    assert_eq!(cpu.timer(), 3 * MS);
    assert_eq!(cpu.choose(3 * MS - 1, &EMPTY).keep, 1);
    assert_eq!(cpu.choose(3 * MS, &EMPTY).who, a);
}

#[test]
fn sleeping_release_preempts_a_plain_thread_when_it_wakes() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 3 * MS);
    cpu.start(PLAIN, Some(&plain(0)), 0);
    assert_eq!(cpu.timer(), 20 * MS);
    cpu.ready(a, 3 * MS);
    assert!(cpu.preempts(a, 3 * MS));
}

#[test]
fn release_does_not_preempt_a_cooperative_thread_within_its_limit() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 3 * MS);
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 9 * MS, 1);
    cpu.start(b, None, 0);
    cpu.ready(a, 3 * MS);
    assert!(!cpu.preempts(a, 3 * MS));
    assert_eq!(cpu.choose(4 * MS - 1, &EMPTY).keep, 1);
    assert_eq!(cpu.choose(4 * MS, &EMPTY).who, a);
}

/// Its time came before the other began, and it itself only now: nobody could tell the other.
#[test]
fn release_that_a_cooperative_thread_was_not_told_of_preempts_it() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 3 * MS);
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 9 * MS, 1);
    let begin = 3 * MS + 10_000;
    cpu.start(b, None, begin);
    assert_eq!(
        cpu.slice_end_ns,
        begin + 20 * MS,
        "a sleeper holds nobody up"
    );
    cpu.ready(a, begin + 5_000);
    assert!(cpu.preempts(a, begin + 5_000));
    let first = cpu.choose(begin + 5_000, &EMPTY);
    assert_eq!((first.who, first.keep), (a, 0));
    assert_eq!(cpu.entity[b as usize].overran, 0, "it has broken no rule");
    // A sleeper's release is nothing to who is due itself, or while it is to come.
    let mut cpu = self::cpu();
    let a = sleeper(&mut cpu, 0, 3 * MS);
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 2 * MS, 1);
    cpu.start(b, None, begin);
    cpu.ready(a, begin + 5_000);
    assert!(
        !cpu.preempts(a, begin + 5_000),
        "the other is due, too, and was first"
    );
}

/// In the kernel a timer that was set for somebody who has gone makes the CPU ask.
#[test]
fn cooperative_thread_goes_on_in_its_slice_whoever_else_is_first() {
    let mut cpu = cpu();
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 6 * MS, 1);
    let due = sleeper(&mut cpu, 0, 9 * MS);
    cpu.start(b, None, 0);
    cpu.ready(due, 9 * MS);
    let least = cpu.choose(5 * MS, &waiting(0, 1));
    assert_eq!((least.who, least.keep), (b, 1), "by virtual time");
    let own = cpu.choose(7 * MS, &waiting(0, 1));
    assert_eq!((own.who, own.keep), (b, 1), "its own release is due");
    let release = cpu.choose(9 * MS + MS / 2, &waiting(0, 1));
    assert_eq!((release.who, release.keep), (b, 1), "another's is, too");
    assert_eq!(cpu.limit_ns, 10 * MS);
    let over = cpu.choose(10 * MS, &waiting(0, 1));
    assert_eq!((over.who, over.keep), (due, 0), "not beyond its limit");
}

#[test]
fn cooperative_thread_makes_way_for_a_promised_window() {
    let mut cpu = cpu();
    let a = cpu.add(100, NOBODY);
    let wish = Window::new(20 * MS, 2 * MS, 0, 1);
    assert_eq!(cpu.admit(a, &wish, false, 0), Admission::Promised);
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 50 * MS, 1);
    cpu.start(b, None, 0);
    cpu.ready(a, MS);
    assert_eq!(cpu.choose(MS, &EMPTY).who, a);
}

#[test]
fn poll_returns_the_earliest_release_of_all_others() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 3 * MS);
    let b = sleeper(&mut cpu, 0, 5 * MS);
    let c = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, c, 0, 0, 4 * MS, 7);
    assert_eq!(cpu.next_release(c, 0), 3 * MS);
    assert_eq!(cpu.next_release(a, 0), 4 * MS);
    assert_eq!(cpu.next_release(b, 0), 3 * MS);
    assert_eq!(cpu.next_release(b, 3 * MS), 4 * MS, "not a late sleeper's");
    assert_eq!(cpu.next_release(b, 4 * MS), 4 * MS, "c waits and is due");
}

#[test]
fn release_in_the_past_counts_as_now() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, a, 0, MS, MS, NEVER);
    let liar = thread(&mut cpu, NOBODY, 0);
    let now = polls_after(&mut cpu, liar, MS, MS, 0, NEVER);
    assert_eq!(cpu.choose(now, &EMPTY).who, a);
}

#[test]
fn threads_of_a_group_share_one_virtual_time() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let (a, b) = (thread(&mut cpu, g, 0), thread(&mut cpu, g, 0));
    cpu.start(a, None, 0);
    cpu.stop(4 * MS);
    assert_eq!(cpu.entity(g).vtime, 2 * MS, "at the weight of both");
    cpu.start(b, None, 4 * MS);
    cpu.stop(6 * MS);
    assert_eq!(cpu.entity(g).vtime, 3 * MS);
    assert_eq!(cpu.choose(6 * MS, &waiting(3 * MS - 1, 1)).who, PLAIN);
    assert_eq!(cpu.choose(6 * MS, &waiting(3 * MS + 1, 1)).who, b);
    cpu.sleep(b, 6 * MS);
    assert_eq!(cpu.entity(g).weight, 100);
    cpu.sleep(a, 6 * MS);
    assert!(!cpu.is_runnable(g));
    assert_eq!(
        cpu.choose(6 * MS, &EMPTY),
        Choice {
            who: NOBODY,
            ..Choice::default()
        }
    );
}

#[test]
fn least_importance_runs_within_a_group() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let (a, b) = (thread(&mut cpu, g, 0), thread(&mut cpu, g, 0));
    let now = polls_after(&mut cpu, a, 0, MS, NEVER, 7);
    let now = polls_after(&mut cpu, b, now, 9 * MS, NEVER, 5);
    assert_eq!(
        cpu.choose(now, &EMPTY).who,
        b,
        "though it has run for longer"
    );
    assert_eq!(cpu.least_importance(a), 5);
    assert_eq!(cpu.least_importance(b), 7);
    let now = polls_after(&mut cpu, b, now, MS, NEVER, 8);
    assert_eq!(cpu.choose(now, &EMPTY).who, a);
}

#[test]
fn importance_counts_only_within_the_group() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    let g = cpu.add_group();
    let b = thread(&mut cpu, g, 0);
    let now = polls_after(&mut cpu, b, 0, MS, NEVER, 0);
    assert_eq!(cpu.choose(now, &EMPTY).who, a);
    assert_eq!(cpu.least_importance(a), NEVER);
}

#[test]
fn member_without_importance_is_not_starved() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let a = thread(&mut cpu, g, 0);
    let mut now = polls_after(&mut cpu, a, 0, 0, NEVER, 5);
    let mut member = Plain {
        group: g,
        ..plain(0)
    };
    cpu.ready_plain(&mut member, now);
    let mut had = [0, 0];
    for _ in 0..100 {
        cpu.set_group_queue(g, waiting(member.vtime, 1));
        let choice = cpu.choose(now, &EMPTY);
        if choice.who == a {
            now = polls_after(&mut cpu, a, now, MS, NEVER, 5);
            had[0] += 1;
        } else {
            assert_eq!(choice.who, g);
            cpu.set_group_queue(g, EMPTY);
            cpu.start(g, Some(&member), now);
            now += MS;
            cpu.stop(now);
            member.vtime = cpu.plain.vtime;
            had[1] += 1;
        }
    }
    assert_eq!(had, [50, 50]);
}

#[test]
fn members_with_an_importance_share_a_virtual_time_within_the_group() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let (a, b) = (thread(&mut cpu, g, 0), thread(&mut cpu, g, 0));
    polls_after(&mut cpu, a, 0, 0, NEVER, 5);
    let now = polls_after(&mut cpu, b, 0, 0, NEVER, 6);
    let now = polls_after(&mut cpu, a, now, 4 * MS, NEVER, 5);
    assert_eq!(cpu.entity(g).shared_vtime, 2 * MS, "at the weight of both");
    cpu.leave(b, now);
    polls_after(&mut cpu, a, now, 4 * MS, NEVER, 5);
    assert_eq!(cpu.entity(g).shared_vtime, 6 * MS, "at its own");
}

/// Importance may give one member any part of the group's time. Who has had much of it and is then
/// demoted does not wait until the others have had as much.
#[test]
fn demoted_member_waits_no_longer_than_a_new_one() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let others: Vec<u32> = (0..3).map(|_| thread(&mut cpu, g, 0)).collect();
    let much = thread(&mut cpu, g, 0);
    let mut now = 0;
    for &other in &others {
        now = polls_after(&mut cpu, other, now, 0, NEVER, 900);
    }
    for importance in 0..400 {
        now = polls_after(&mut cpu, much, now, MS, NEVER, importance);
    }
    cpu.start(much, None, now);
    now += 22 * MS;
    cpu.stop(now);
    assert!(cpu.entity(much).overran == 1, "the slice, and the slack");
    let mut waited = 0;
    loop {
        let who = cpu.choose(now, &EMPTY).who;
        if who == much {
            break;
        }
        assert!(waited < 50, "of the others, who have had 400 ms less");
        now = polls_after(&mut cpu, who, now, MS, NEVER, 900);
        waited += 1;
    }
    assert!(waited > 0, "it had its turn just now");
}

#[test]
fn rule_1_running_past_the_slice_and_the_slack_demotes() {
    let mut cpu = cpu();
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 10 * MS, 1);
    cpu.start(b, None, 0);
    assert_eq!(cpu.limit_ns, 21 * MS);
    cpu.choose(21 * MS - 1, &EMPTY);
    assert!(cpu.is_cooperative(b), "within the slack");
    cpu.choose(21 * MS, &EMPTY);
    assert!(!cpu.is_cooperative(b));
    assert_eq!(cpu.entity(b).overran, 1);
    cpu.poll(b, 25 * MS, 30 * MS, 1);
    assert!(cpu.is_cooperative(b), "until its next poll");
    assert_eq!(cpu.entity(b).overran, 1, "counted once");
}

#[test]
fn due_thread_that_does_not_poll_has_the_slack_once() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 5 * MS);
    cpu.ready(a, 5 * MS);
    cpu.start(a, None, 5 * MS);
    let choice = cpu.choose(6 * MS, &waiting(0, 1));
    assert_eq!((choice.who, choice.why), (PLAIN, why::FAIR));
    assert_eq!(cpu.entity(a).overran, 1);
}

#[test]
fn cooperative_thread_gets_no_new_slice_without_a_poll() {
    let mut cpu = cpu();
    let b = thread(&mut cpu, NOBODY, 0);
    polls_after(&mut cpu, b, 0, 0, 50 * MS, 1);
    cpu.start(b, None, 0);
    let choice = cpu.choose(15 * MS, &EMPTY);
    assert_eq!((choice.who, choice.keep), (b, 1));
    assert_eq!(cpu.would_run_ns(b, 15 * MS), 6 * MS);
    cpu.start(b, None, 15 * MS);
    assert_eq!(cpu.limit_ns, 21 * MS);
}

#[test]
fn rule_2_sleeping_other_than_in_a_poll_demotes() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 5 * MS);
    assert_eq!(cpu.entity(a).slept, 0, "in a poll");
    cpu.ready(a, 5 * MS);
    cpu.start(a, None, 5 * MS);
    cpu.stop(5 * MS + 1);
    cpu.sleep(a, 5 * MS + 1);
    assert_eq!(cpu.entity(a).slept, 1);
    assert!(!cpu.is_cooperative(a));
    assert_eq!(cpu.next_release(NOBODY, 0), NEVER);
}

#[test]
fn leaving_the_cpu_is_no_sleep() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 5 * MS);
    cpu.ready(a, 5 * MS);
    cpu.start(a, None, 5 * MS);
    cpu.stop(5 * MS + 1);
    cpu.leave(a, 5 * MS + 1);
    assert_eq!(cpu.entity(a).slept, 0);
    assert!(cpu.is_cooperative(a));
}

#[test]
fn rule_3_virtual_time_beyond_the_threshold_demotes() {
    let mut cpu = cpu();
    let a = thread(&mut cpu, NOBODY, 0);
    cpu.choose(0, &waiting(0, 1));
    let now = polls_after(&mut cpu, a, 0, 20 * MS, 20 * MS, 1);
    assert!(cpu.is_cooperative(a), "as far as allowed");
    assert_eq!(cpu.choose(now, &waiting(0, 1)).who, a);
    let now = polls_after(&mut cpu, a, now, 1, now + 2, 1);
    assert!(!cpu.is_cooperative(a));
    assert_eq!(cpu.entity(a).ahead, 1);
    assert_eq!(cpu.choose(now + 2, &waiting(0, 1)).who, PLAIN);
}

/// Windows, say: it does not break rule 1, and its release stays due while it does not poll.
#[test]
fn rule_3_holds_for_a_thread_whose_turns_others_end_before_the_slack_does() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 0);
    cpu.choose(0, &waiting(0, 1));
    cpu.ready(a, 0);
    let mut now = 0;
    while cpu.choose(now, &waiting(0, 1)).who == a {
        assert!(now < 22 * MS, "ahead");
        cpu.start(a, None, now);
        now += MS / 2;
        cpu.stop(now);
    }
    let entity = cpu.entity(a);
    assert_eq!((entity.overran, entity.ahead), (0, 1));
    assert!(now > 20 * MS, "as far as allowed");
}

/// The only one that waits is the hog that the releases of the others keep from running.
#[test]
fn rule_3_counts_from_a_hog_that_was_just_preempted() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 0);
    let (mut now, mut hog) = (0, plain(0));
    cpu.choose(now, &waiting(0, 1));
    for _ in 0..30 {
        cpu.start(PLAIN, Some(&hog), now);
        now += MS / 10;
        cpu.ready(a, now);
        let due = cpu.choose(now, &EMPTY).who;
        cpu.stop(now);
        hog = cpu.plain;
        if due != a {
            break;
        }
        now = polls_after(&mut cpu, a, now, MS, now + MS, NEVER);
        cpu.sleep(a, now);
        now += MS;
    }
    assert_eq!(cpu.entity(a).ahead, 1);
    assert!(cpu.entity(a).vtime <= hog.vtime + 21 * MS);
}

#[test]
fn rule_3_measures_cpu_time_whatever_the_weight() {
    for weight in [1, 100, 10_000] {
        let mut cpu = cpu();
        let a = cpu.add(weight, NOBODY);
        cpu.ready(a, 0);
        cpu.choose(0, &waiting(0, 1));
        let now = polls_after(&mut cpu, a, 0, 20 * MS, NEVER, 1);
        assert!(cpu.is_cooperative(a), "weight {weight}");
        polls_after(&mut cpu, a, now, MS, NEVER, 1);
        assert!(!cpu.is_cooperative(a), "weight {weight}");
    }
}

#[test]
fn demoted_thread_is_fair_like_everybody() {
    let mut cpu = cpu();
    let a = sleeper(&mut cpu, 0, 5 * MS);
    cpu.ready(a, 5 * MS);
    cpu.start(a, None, 5 * MS);
    cpu.stop(8 * MS);
    assert!(!cpu.is_cooperative(a), "ran for 3 ms in a slice of 0");
    let choice = cpu.choose(8 * MS, &waiting(0, 1));
    assert_eq!((choice.who, choice.why), (PLAIN, why::FAIR));
    assert_eq!(cpu.choose(8 * MS, &waiting(9 * MS, 1)).who, a);
}

#[test]
fn removed_entity_is_in_no_set() {
    let mut cpu = cpu();
    let g = cpu.add_group();
    let a = thread(&mut cpu, g, 0);
    polls_after(&mut cpu, a, 0, 0, 5 * MS, 1);
    cpu.leave(a, 0);
    cpu.remove(a);
    cpu.remove(g);
    let sets = [
        cpu.used,
        cpu.groups,
        cpu.inside,
        cpu.runnable,
        cpu.cooperative,
        cpu.polled,
    ];
    assert_eq!(sets, [0; 6]);
}
