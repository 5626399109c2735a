//! Downcalls (ECalls-01 §2.3.1): fast, deferred with its three times and two modes, generic; timers
//! over them. Needs root.

mod harness;

use std::process::Command;
use std::time::{Duration, Instant};

use ecalls::downcall::Call;
use ecalls::timer::Timer;
use ecalls::{Error, Raise};
use harness::{
    PATIENCE, QUIET, assert_all_adds_up, core, own_service, take_until_quiet, wait_until,
};
use limit::Running;
use limit::calm::measured;

/// On a kernel whose mechanism is known, as in the test machine, the environment names it.
#[test]
fn mechanism_of_the_fast_call_is_the_expected_one() {
    let Some(ecalls) = core() else { return };
    let Ok(expected) = std::env::var("ECALLS_TEST_FAST_CALL") else {
        eprintln!("skipped: ECALLS_TEST_FAST_CALL does not name one");
        return;
    };
    let chosen = ecalls.core().expect("hosted here").fast_call();
    assert_eq!(chosen.expect("one of them").name(), expected);
}

#[test]
fn fast_call_answers_by_every_mechanism() {
    let Some(ecalls) = core() else { return };
    let channel = ecalls.channel().open().expect("a channel");
    let pid = i64::from(std::process::id());
    assert_eq!(channel.caller().fast(Call::GetPid).expect("a call"), pid);
    assert_eq!(channel.caller().run(Call::GetPid).expect("a call"), pid);
    assert_eq!(
        channel
            .caller()
            .fast(Call::Set {
                attribute: 7,
                value: 1 << 40
            })
            .expect("it"),
        0
    );
    assert_eq!(
        channel
            .caller()
            .fast(Call::Get { attribute: 7 })
            .expect("it"),
        1 << 40
    );
    let refused = channel
        .caller()
        .fast(Call::Get { attribute: 32 })
        .expect("an answer");
    assert_eq!(refused, -22, "there is no attribute 32: EINVAL");
}

#[test]
fn a_slot_is_handed_to_a_child_and_to_nobody_else() {
    let Some(ecalls) = core() else { return };
    let channel = ecalls.channel().open().expect("a channel");
    let hand = |process| channel.caller().hand_slot(0, 1, None, process).map(|_| ());
    let refusal = |process| match hand(process) {
        Err(Error::Os { source, .. }) => source.raw_os_error(),
        other => panic!("{other:?}"),
    };
    let mut child = Running::start(Command::new("sleep").arg("600"));
    hand(child.id()).expect("a child");
    hand(child.id()).expect("again");
    let parent = std::os::unix::process::parent_id();
    assert_eq!(refusal(parent), Some(libc::ECHILD), "a stranger");
    assert_eq!(refusal(std::process::id()), Some(libc::ECHILD), "itself");
    let number = child.id();
    child.kill(PATIENCE);
    for nobody in [number, 0, u32::MAX] {
        assert_eq!(refusal(nobody), Some(libc::ESRCH), "{nobody}");
    }
}

#[test]
fn threads_do_not_mix_up_their_results() {
    let Some(ecalls) = core() else { return };
    let channel = ecalls.channel().open().expect("a channel");
    std::thread::scope(|scope| {
        for attribute in 0..8u32 {
            let caller = channel.caller().clone();
            scope.spawn(move || {
                for value in 0..2000i64 {
                    let word = value.cast_unsigned();
                    caller
                        .fast(Call::Set {
                            attribute,
                            value: word,
                        })
                        .expect("a call");
                    assert_eq!(caller.fast(Call::Get { attribute }).expect("a call"), value);
                }
            });
        }
    });
}

#[test]
fn deferred_calls_are_handled_in_order_at_the_next_fast_call() {
    let Some(ecalls) = core() else { return };
    let channel = ecalls.channel().open().expect("a channel");
    let caller = channel.caller();
    for value in 1..=10 {
        caller
            .defer(Call::Set {
                attribute: 0,
                value,
            })
            .expect("room");
    }
    assert_eq!(caller.pending(), 10);
    assert_eq!(
        caller.fast(Call::Get { attribute: 0 }).expect("a call"),
        10,
        "handled before"
    );
    assert_eq!(caller.pending(), 0);
    for value in 0..3000 {
        caller
            .defer(Call::Set {
                attribute: 1,
                value,
            })
            .expect("a full ring is flushed");
    }
    caller.flush().expect("calls");
    assert_eq!(
        caller.fast(Call::Get { attribute: 1 }).expect("a call"),
        2999
    );
}

#[test]
fn of_latest_calls_only_the_last_is_handled() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let _subscription = ecalls
        .subscribe(&name)
        .expect("it")
        .memory(&channel)
        .install()
        .expect("one");
    let caller = channel.caller().clone();
    for data in 1..=100 {
        let raise = Call::Raise {
            service: service.index(),
            kind: 1,
            target: -1,
            data,
        };
        caller.defer_latest(3, raise).expect("a cell");
    }
    assert!(channel.try_recv().is_none(), "nothing happened yet");
    caller.fast(Call::Nop).expect("a call");
    let got: Vec<_> = std::iter::from_fn(|| channel.try_recv())
        .map(|e| e.data_word())
        .collect();
    assert_eq!(got, [100]);
    assert!(matches!(
        caller.defer_latest(16, Call::Nop),
        Err(Error::Invalid { .. })
    ));
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn deferred_calls_are_handled_after_the_channels_delay() {
    measured(Duration::from_millis(4), || {
        let Some(ecalls) = core() else { return };
        let (service, name) = own_service(&ecalls);
        let delay = Duration::from_millis(20);
        let mut channel = ecalls
            .channel()
            .defer_delay(delay)
            .open()
            .expect("a channel");
        let _subscription = ecalls
            .subscribe(&name)
            .expect("it")
            .memory(&channel)
            .install()
            .expect("one");
        let start = Instant::now();
        for data in 0..5 {
            let raise = Call::Raise {
                service: service.index(),
                kind: 0,
                target: -1,
                data,
            };
            channel.caller().defer(raise).expect("room");
        }
        let first = channel
            .recv_timeout(PATIENCE)
            .expect("a living core")
            .expect("an event");
        assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
        assert_eq!(first.data_word(), 0);
        let rest: Vec<_> = std::iter::from_fn(|| channel.try_recv())
            .map(|e| e.data_word())
            .collect();
        // If they were deferred within the delay.
        assert_eq!(rest, [1, 2, 3, 4], "in one batch");
        assert_all_adds_up(&ecalls, service.index());
    });
}

#[test]
fn deferred_calls_are_handled_before_the_next_scheduling() {
    let Some(ecalls) = core() else { return };
    let channel = ecalls.channel().defer_switch().open().expect("a channel");
    let caller = channel.caller();
    caller
        .defer(Call::Set {
            attribute: 2,
            value: 77,
        })
        .expect("room");
    wait_until("a switch handles it", || {
        std::thread::sleep(Duration::from_millis(1));
        caller.pending() == 0
    });
    assert_eq!(caller.fast(Call::Get { attribute: 2 }).expect("a call"), 77);
}

#[test]
fn only_the_owner_may_raise_for_a_service() {
    let Some(ecalls) = core() else { return };
    let (service, _name) = own_service(&ecalls);
    let channel = ecalls.channel().open().expect("a channel");
    let builtin = Call::Raise {
        service: 2,
        kind: 0,
        target: -1,
        data: 0,
    };
    assert!(
        channel.caller().fast(builtin).expect("an answer") < 0,
        "task is the kernel's"
    );
    let unused = Call::Raise {
        service: 63,
        kind: 0,
        target: -1,
        data: 0,
    };
    assert!(channel.caller().fast(unused).expect("an answer") < 0);
    let own = Call::Raise {
        service: service.index(),
        kind: 0,
        target: -1,
        data: 0,
    };
    let nobody = channel.caller().fast(own).expect("an answer");
    assert!(nobody == 0 || nobody == -2, "nobody subscribed: {nobody}");
    let error = ecalls
        .raise("no-such-service", &Raise::new(&[]))
        .expect_err("unknown");
    assert!(error.to_string().contains("no-such-service"), "{error}");
}

#[test]
fn timers_expire_once_periodically_and_at_a_time() {
    let Some(ecalls) = core() else { return };
    let mut channel = ecalls.channel().open().expect("a channel");
    let subscription = ecalls
        .subscribe("timer")
        .expect("the service")
        .memory(&channel)
        .install()
        .expect("one");
    let caller = channel.caller().clone();
    let start = Instant::now();
    let once = Timer::after(&caller, Duration::from_millis(20)).expect("a timer");
    let event = channel
        .recv_timeout(PATIENCE)
        .expect("a living core")
        .expect("an expiry");
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(event.r#type, once.number());
    assert!(
        channel
            .recv_timeout(QUIET)
            .expect("a living core")
            .is_none(),
        "only once"
    );
    let periodic = Timer::every(&caller, Duration::from_millis(5)).expect("a timer");
    let mut expiries = Vec::new();
    for _ in 0..10 {
        let event = channel
            .recv_timeout(PATIENCE)
            .expect("a living core")
            .expect("an expiry");
        assert_eq!(event.r#type, periodic.number());
        expiries.push(event.data[0]);
    }
    for pair in expiries.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(
            apart % 5_000_000 == 0 && apart > 0,
            "no drift: {expiries:?}"
        );
    }
    drop(periodic);
    take_until_quiet(&mut channel, |_| ());
    let at_ns = ecalls::now_ns() + 10_000_000;
    let absolute = Timer::at(&caller, at_ns, None).expect("a timer");
    let event = channel
        .recv_timeout(PATIENCE)
        .expect("a living core")
        .expect("an expiry");
    assert_eq!((event.r#type, event.data[0]), (absolute.number(), at_ns));
    drop(subscription);
}

#[test]
fn there_is_memory_for_as_many_timers_as_channels_may_have() {
    let Some(ecalls) = core() else { return };
    let hour = Duration::from_secs(3600);
    let channels: Vec<_> = (0..3)
        .map(|_| ecalls.channel().ring(64).open().expect("a channel"))
        .collect();
    let timers: Vec<_> = channels
        .iter()
        .flat_map(|channel| (0..256).map(|_| Timer::every(channel.caller(), hour)))
        .collect();
    for (number, timer) in timers.iter().enumerate() {
        assert!(timer.is_ok(), "timer {number}: {timer:?}");
    }
}

#[test]
fn call_that_is_deferred_while_the_delay_ends_is_not_left_behind() {
    let Some(ecalls) = core() else { return };
    let shape = ecalls.channel().defer_delay(Duration::from_micros(50));
    let channel = shape.open().expect("a channel");
    let caller = channel.caller();
    let set = |value| Call::Set {
        attribute: 0,
        value,
    };
    let end = Instant::now() + Duration::from_secs(3);
    let mut round = 0u64;
    while Instant::now() < end {
        round += 1;
        let busy = Instant::now();
        // A row of calls that goes on while the timer of the first one expires, and stops then.
        while busy.elapsed() < Duration::from_micros(60 + round % 50) {
            caller.defer(set(round)).expect("deferred");
            caller.defer_latest(3, set(round)).expect("deferred");
        }
        wait_until("all are handled", || caller.pending() == 0);
    }
}
