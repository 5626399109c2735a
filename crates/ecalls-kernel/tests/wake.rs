//! A wake-up that the kernel cannot send is not lost: the reader counts as asleep, and a later
//! event wakes it. Needs root.
#![allow(unsafe_code, reason = "of the shared harness")]

mod harness;

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecalls_abi::channel::{Up, WAKE_BYTES};
use ecalls_abi::subscription::{ACTION_MEMORY, Action};
use ecalls_kernel::access;
use ecalls_kernel::channel::Shape;
use ecalls_kernel::handle::{ChannelHandle, Service, SubscriptionHandle};
use ecalls_kernel::raise::Raise;
use ecalls_kernel::subscription::Request;
use zerocopy::FromZeros;

/// What a wake-up takes in the descriptor's buffer: a header and a word.
const WAKE_UP_BYTES: usize = 16;

#[test]
fn reader_whose_wake_up_fails_is_woken_by_a_later_event() {
    let Some(stage) = harness::stage() else {
        return;
    };
    let core = &stage.core;
    let access = access::of_core(Arc::clone(core));
    let name = format!("wake-{}", std::process::id());
    let service = Service::register(Arc::clone(&access), &name, "u64 value", "");
    let service = service.expect("a service");
    let channel = ChannelHandle::open(Arc::clone(&access), Shape::default()).expect("a channel");
    let mut action = Action::new_zeroed();
    action.kind = ACTION_MEMORY;
    action.channel = channel.id().raw();
    let request = Request {
        service: service.index(),
        channel: Some(channel.id()),
        ..harness::request(vec![action])
    };
    let subscription = SubscriptionHandle::install(Arc::clone(&access), &request).expect("one");
    let word = |offset: usize| &channel.up()[offset / 8];
    let sleeping = word(offset_of!(Up, sleeping));
    // An event for a reader that says it sleeps, and takes the events, but clears no wake-up.
    let raise = || {
        sleeping.store(1, Ordering::SeqCst);
        let back = word(offset_of!(Up, back)).load(Ordering::SeqCst);
        word(offset_of!(Up, front)).store(back, Ordering::SeqCst);
        assert_eq!(service.raise(&Raise::new(&[1; 8])).expect("raised"), 1);
        sleeping.load(Ordering::SeqCst) == 0
    };
    let wakes = || {
        let count = core.subscription_count(subscription.id().index());
        count.expect("its row").wakes
    };
    let fit = (0..=WAKE_BYTES / WAKE_UP_BYTES).take_while(|_| raise());
    let fit = fit.count();
    assert!(fit > 0 && fit <= WAKE_BYTES / WAKE_UP_BYTES, "{fit}");
    assert_eq!(wakes(), fit as u64, "the last event sent none");
    // Until the reader clears them the descriptor is readable, so nobody waits in vain.
    assert!(channel.wait(Some(0)).expect("a living core"));
    assert!(!channel.wait(Some(0)).expect("a living core"));
    assert!(raise());
    assert_eq!(wakes(), fit as u64 + 1);
    assert!(channel.wait(Some(0)).expect("a living core"));
}
