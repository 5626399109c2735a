//! What strangers can do with what the core's host gives them, and what they cannot. Needs root, to
//! become them.

#![allow(unsafe_code, reason = "system calls of other users")]

mod harness;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ecalls_abi::subscription::{ACTION_MEMORY, Action, SCOPE_OWN};
use ecalls_kernel::channel::{HostedChannel, Shape};
use ecalls_kernel::measure::{self, Measure};
use ecalls_kernel::subscription::{HostedSubscription, Request};
use harness::{Stage, as_user, request, stage};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::FromZeros;

const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;

/// bpf(2)
const BPF_MAP_FREEZE: libc::c_int = 22;

fn channel_of_anna(stage: &Stage) -> HostedChannel {
    let core = std::sync::Arc::clone(&stage.core);
    HostedChannel::open(core, &stage.owner(ANNA, 0), &Shape::default()).expect("a channel")
}

/// A subscription of Anna's that delivers into that channel.
fn into(stage: &Stage, channel: &HostedChannel) -> HostedSubscription {
    let mut memory = Action::new_zeroed();
    memory.kind = ACTION_MEMORY;
    memory.channel = channel.id().raw();
    let request = Request {
        channel: Some(channel.id()),
        coalesce: false,
        scope: SCOPE_OWN,
        ..request(vec![memory])
    };
    let core = std::sync::Arc::clone(&stage.core);
    HostedSubscription::install(core, &stage.owner(ANNA, 0), &request).expect("a subscription")
}

/// Makes a map read-only for good. The error's number; 0: it is.
fn freeze(map: BorrowedFd<'_>) -> i32 {
    let attributes = [map.as_raw_fd()];
    // SAFETY: the kernel reads one descriptor, as many bytes as it is told.
    let error = unsafe {
        let size = size_of_val(&attributes);
        libc::syscall(libc::SYS_bpf, BPF_MAP_FREEZE, attributes.as_ptr(), size)
    };
    match error {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

#[test]
fn memory_is_not_frozen_by_whom_it_was_given_to() {
    let Some(stage) = stage() else { return };
    let channel = channel_of_anna(&stage);
    let subscription = into(&stage, &channel);
    for map in [&channel.fds().up, &channel.fds().down] {
        assert_eq!(as_user(ANNA, || freeze(map.as_fd())), libc::EBUSY);
    }
    stage.raise_as(ANNA, 3);
    assert_eq!(stage.count(&subscription).delivered, 3);
}

#[test]
fn memory_of_a_closed_channel_is_not_written_any_more() {
    let Some(stage) = stage() else { return };
    let channel = channel_of_anna(&stage);
    let subscription = into(&stage, &channel);
    let [up, ..] = channel.map_ids().expect("its maps");
    let kept = MapHandle::from_map_id(up).expect("a descriptor of its own");
    let header = || {
        let header = kept.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        header.expect("a look").expect("the first element")
    };
    stage.raise_as(ANNA, 2);
    let open = header();
    stage.raise_as(ANNA, 1);
    assert_ne!(header(), open, "it is written while the channel is open");
    let closed = header();
    drop(channel);
    // Who opens the next one gets memory of its own.
    let next = channel_of_anna(&stage);
    let _next = into(&stage, &next);
    stage.raise_as(ANNA, 5);
    assert_eq!(header(), closed);
    assert_eq!(stage.count(&subscription).delivered, 3);
}

#[test]
fn what_a_process_of_several_users_does_is_nobodys_but_roots() {
    let Some(stage) = stage() else { return };
    let core = std::sync::Arc::clone(&stage.core);
    let channel = channel_of_anna(&stage);
    let anna = into(&stage, &channel);
    for (real, effective, saved) in [(ANNA, ANNA, 0), (ANNA, BERT, ANNA), (0, ANNA, ANNA)] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: takes numbers only, and changes this thread alone.
                let error = unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) };
                assert_eq!(error, 0, "root becomes anybody");
                measure::raise(&core, &Measure::new(1)).expect("a program that runs");
            });
        });
        assert_eq!(stage.count(&anna).offered, 0, "{real} {effective} {saved}");
    }
    stage.raise_as(ANNA, 1);
    assert_eq!(stage.count(&anna).offered, 1);
}
