//! A CPU that is switched off loses no event. Needs root, a second CPU, and that a CPU may be
//! switched off for a second: `ECALLS_TEST_HOTPLUG=1` says so.

mod harness;

use std::time::Duration;

use ecalls::Raise;
use harness::{PATIENCE, assert_all_adds_up, core, own_service};
use rustix::thread::{CpuSet, sched_setaffinity};

const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

/// Switches the CPU on again, whatever becomes of the test.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        let _ = std::fs::write(ONLINE, "1");
    }
}

fn run_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU");
}

#[test]
fn event_that_is_held_on_a_cpu_that_is_switched_off_is_delivered_on_another() {
    if std::env::var_os("ECALLS_TEST_HOTPLUG").is_none() {
        eprintln!("skipped: ECALLS_TEST_HOTPLUG is not set");
        return;
    }
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _subscription = builder.memory(&channel).install().expect("one");
    run_on(1);
    for (value, release_ms) in [(1u64, 700), (2, 400), (3, 900)] {
        let data = value.to_ne_bytes();
        let later = Raise::new(&data).release(Duration::from_millis(release_ms));
        service.raise(&later).expect("raised");
    }
    run_on(0);
    std::fs::write(ONLINE, "0").expect("a CPU that can be switched off");
    let off = Off;
    let mut values = Vec::new();
    for _ in 0..3 {
        let event = channel.recv_timeout(PATIENCE).expect("a living core");
        let event = event.expect("an event");
        assert!(ecalls::now_ns() >= event.release_ns, "not before its time");
        values.push(event.data_word());
    }
    assert_eq!(values, [2, 1, 3]);
    drop(off);
    assert_all_adds_up(&ecalls, service.index());
}
