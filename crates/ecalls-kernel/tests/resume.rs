//! The rest of a chain after a user handler goes on with the event that the handler saw, or not at
//! all. Needs root.
#![allow(unsafe_code, reason = "of the shared harness")]

mod harness;

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecalls_abi::channel::{DropReason, Up};
use ecalls_abi::downcall::Op;
use ecalls_abi::handler::HANDLER_COUNT;
use ecalls_abi::subscription::{ACTION_USER, Action};
use ecalls_kernel::access;
use ecalls_kernel::channel::Shape;
use ecalls_kernel::downcall::Frames;
use ecalls_kernel::handle::{ChannelHandle, Service, SubscriptionHandle};
use ecalls_kernel::raise::Raise;
use ecalls_kernel::subscription::Request;
use zerocopy::FromZeros;

#[test]
fn position_that_is_taken_again_is_not_resumed() {
    let Some(stage) = harness::stage() else {
        return;
    };
    let core = &stage.core;
    let access = access::of_core(Arc::clone(core));
    let name = format!("resume-{}", std::process::id());
    let service = Service::register(Arc::clone(&access), &name, "u64 value", "");
    let service = service.expect("a service");
    let channel = ChannelHandle::open(Arc::clone(&access), Shape::default()).expect("a channel");
    let mut actions = vec![Action::new_zeroed(); 2];
    actions[0].kind = ACTION_USER;
    actions[0].channel = channel.id().raw();
    actions[1] = harness::handler(HANDLER_COUNT);
    let request = Request {
        service: service.index(),
        channel: Some(channel.id()),
        ..harness::request(actions)
    };
    let subscription = SubscriptionHandle::install(Arc::clone(&access), &request).expect("one");
    assert_eq!(service.raise(&Raise::new(&[1; 8])).expect("raised"), 1);
    let frames = Frames::default();
    let frame = frames.lease().expect("a frame");
    let resume = || {
        let arguments = [u64::from(subscription.id().raw()), 0, 1];
        let result = channel.fast_call(&frame, Op::Resume, arguments);
        result.expect("a living core")
    };
    let count = || {
        core.subscription_count(subscription.id().index())
            .expect("it")
    };
    let back = &channel.up()[offset_of!(Up, back) / 8];
    // A producer that has taken the position and begun to write leaves its former number there.
    back.fetch_add(u64::from(channel.shape().capacity), Ordering::SeqCst);
    assert_eq!(resume(), -i64::from(libc::ENOENT));
    let lost = count();
    assert_eq!((lost.delivered, lost.dropped(DropReason::RingFull)), (1, 1));
    back.fetch_sub(u64::from(channel.shape().capacity), Ordering::SeqCst);
    assert!(resume() >= 0);
    let passed = count();
    assert_eq!(
        (passed.offered, passed.delivered, passed.handlers),
        (3, 2, 1)
    );
}
