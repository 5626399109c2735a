//! The service `cpu` on busy control groups. Needs root, and control groups of version 2.

mod harness;

use std::sync::Mutex;
use std::time::Duration;

use ecalls::{Channel, Ecalls, Event, Subscription};
use ecalls_abi::service::{CPU_PRESSURE, CPU_UTILIZATION, CpuEvent, SERVICE_CPU};
use harness::cgroup::{Group, measures_pressure};
use harness::{Parameter, core, find, wait_until};
use limit::calm::Standstill;

/// The period is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const NOBODY: u32 = 65534;
const MACHINE: u64 = 1;
const PERIOD: Duration = Duration::from_millis(200);
const BUSY: &str = "while :; do :; done";

fn watch(ecalls: &Ecalls) -> (Channel, Subscription) {
    let channel = ecalls.channel().ring(16384).open().expect("a channel");
    let builder = ecalls.subscribe("cpu").expect("the service");
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (channel, subscription)
}

fn data(event: &Event) -> CpuEvent {
    event.data_as().expect("a cpu event")
}

/// What holds of every event, of a machine that stood still for so long.
fn assert_makes_sense(event: &Event, stood_still: Duration) -> CpuEvent {
    let told = data(event);
    let cpus = std::thread::available_parallelism().expect("some").get() as u64;
    // What a CPU has counted and not yet added up comes with the next period.
    let late_ns = 100_000_000 + u64::try_from(stood_still.as_nanos()).expect("a short time");
    let most_ns = (told.period_ns + late_ns) * cpus;
    assert!(told.usage_ns <= most_ns, "{told:?}");
    let utilization = told.usage_ns * 1000 / told.period_ns;
    assert_eq!(u64::from(told.utilization), utilization, "{told:?}");
    assert!(told.pressure_full <= told.pressure_some && told.pressure_some <= 1000);
    assert_eq!((event.pid, event.tid), (0, 0), "of no process");
    told
}

#[test]
fn busy_group_and_the_machine_are_told_with_what_they_used_each_period() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let Some(mut group) = Group::new() else {
        return;
    };
    let _period = Parameter::set(&ecalls, SERVICE_CPU, PERIOD);
    group.give_to(NOBODY);
    group.run(BUSY, |_| ());
    let (mut channel, subscription) = watch(&ecalls);
    let (id, parent) = group.ids();
    let standstill = Standstill::begin(|| ());
    let mut before_ns = 0;
    for _ in 0..3 {
        let event = find(&mut channel, "the group", |event| {
            assert_makes_sense(event, standstill.longest());
            // It never sleeps, but others may have the CPUs for a while.
            event.kind == CPU_UTILIZATION
                && data(event).cgroup == id
                && data(event).utilization >= 50
        });
        let told = data(&event);
        assert_eq!((told.parent, told.name()), (parent, group.name()));
        let stood_ns = u64::try_from(standstill.longest().as_nanos()).expect("a short time");
        assert!(told.period_ns + stood_ns >= 150_000_000, "{told:?}");
        assert_eq!(event.uid, NOBODY, "it is his group");
        let passed_ns = event.raise_ns - before_ns;
        assert!(passed_ns + stood_ns >= 100_000_000, "once per period");
        before_ns = event.raise_ns;
    }
    let event = find(&mut channel, "the machine", |event| {
        event.kind == CPU_UTILIZATION
            && data(event).cgroup == MACHINE
            && data(event).utilization >= 50
    });
    let machine = data(&event);
    assert_eq!((machine.parent, event.uid), (0, 0));
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_CPU);
    let raised = |ecalls: &Ecalls| {
        let stat = ecalls.access().service_stat(SERVICE_CPU).expect("it");
        stat.count.raised
    };
    let before = raised(&ecalls);
    std::thread::sleep(3 * PERIOD);
    assert_eq!(raised(&ecalls), before, "nobody is subscribed");
}

#[test]
fn group_whose_threads_wait_for_a_cpu_is_under_pressure() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    if !measures_pressure() {
        return;
    }
    let Some(mut group) = Group::new() else {
        return;
    };
    let _period = Parameter::set(&ecalls, SERVICE_CPU, PERIOD);
    for _ in 0..3 {
        group.run(&format!("exec taskset -c 0 sh -c '{BUSY}'"), |_| ());
    }
    let (mut channel, subscription) = watch(&ecalls);
    let (id, _) = group.ids();
    let standstill = Standstill::begin(|| ());
    let event = find(&mut channel, "its pressure", |event| {
        assert_makes_sense(event, standstill.longest());
        // The first measuring interval may have begun before the group was busy.
        event.kind == CPU_PRESSURE && data(event).cgroup == id && data(event).pressure_some > 500
    });
    assert_eq!((data(&event).name(), event.uid), (group.name(), 0));
    find(&mut channel, "the machine's pressure", |event| {
        event.kind == CPU_PRESSURE && data(event).cgroup == MACHINE
    });
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_CPU);
}

#[test]
fn group_that_does_nothing_raises_nothing() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let Some(mut group) = Group::new() else {
        return;
    };
    let _period = Parameter::set(&ecalls, SERVICE_CPU, PERIOD);
    let pid = group.run("exec sleep 100", |_| ());
    wait_until("it sleeps", || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "sleep\n")
            && limit::sleeps(&format!("/proc/{pid}")) == Some(true)
    });
    std::thread::sleep(PERIOD); // until that has been added up
    let (mut channel, subscription) = watch(&ecalls);
    let (id, _) = group.ids();
    std::thread::sleep(4 * PERIOD);
    while let Some(event) = channel.try_recv() {
        assert_ne!(data(&event).cgroup, id, "it sleeps: {:?}", data(&event));
    }
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_CPU);
}

#[test]
fn period_beyond_its_limits_is_refused() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    for nanoseconds in [0, 9_999_999, 3_600_000_000_001] {
        let error = ecalls
            .access()
            .set_parameter(SERVICE_CPU, nanoseconds)
            .expect_err("beyond the limits");
        assert!(error.to_string().contains("10 ms to an hour"), "{error}");
    }
}
