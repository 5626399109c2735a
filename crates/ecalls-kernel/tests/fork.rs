//! What a forked child has copies of stays its parent's. Needs root.
#![allow(unsafe_code, reason = "a fork has no safe name")]

mod harness;

use std::sync::Arc;

use ecalls_abi::channel::STATE_ACTIVE;
use ecalls_abi::subscription::{ACTION_MEMORY, Action};
use ecalls_kernel::access;
use ecalls_kernel::channel::Shape;
use ecalls_kernel::handle::{ChannelHandle, SubscriptionHandle};
use ecalls_kernel::subscription::Request;
use zerocopy::FromZeros;

#[test]
fn child_that_drops_its_copies_ends_nothing_of_its_parent() {
    let Some(stage) = harness::stage() else {
        return;
    };
    let core = &stage.core;
    let access = access::of_core(Arc::clone(core));
    let channel = ChannelHandle::open(Arc::clone(&access), Shape::default()).expect("a channel");
    let mut action = Action::new_zeroed();
    action.kind = ACTION_MEMORY;
    action.channel = channel.id().raw();
    let request = Request {
        kinds: 1 << 31,
        channel: Some(channel.id()),
        ..harness::request(vec![action])
    };
    let subscription = SubscriptionHandle::install(Arc::clone(&access), &request).expect("one");
    let (channel_id, subscription_id) = (channel.id().raw(), subscription.id().raw());
    // SAFETY: the child only drops its copies, which takes a file lock and system calls, and exits
    // without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a child");
    if child == 0 {
        // SAFETY: takes a number. Ends a child that hangs, so that its parent need not wait.
        unsafe { libc::alarm(20) };
        drop((subscription, channel));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a number that the call may write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let channels = core.channels().expect("the channels");
    let row = channels.iter().find(|row| row.id == channel_id);
    assert_eq!(row.map(|row| row.state), Some(STATE_ACTIVE));
    let subscriptions = core.subscriptions().expect("the subscriptions");
    let stat = subscriptions
        .iter()
        .find(|stat| stat.row.id == subscription_id);
    assert_eq!(stat.map(|stat| stat.row.state), Some(STATE_ACTIVE));
}
