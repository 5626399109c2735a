//! Handler threads, which run user handlers (ECalls-05 §3.1, "user handler"; an upcall).
//!
//! Each user handler has a channel and a thread of its own. The thread sleeps on the channel, takes
//! the waiting events in order of deadlines, calls the handler, and, if the handler returns
//! [`Flow::Continue`](crate::Flow), makes the kernel continue the event's chain by a fast call. The
//! segments are locked into memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ecalls_abi::channel::Id;
use ecalls_abi::downcall::Op;

use ecalls_ring::Event;

use crate::Result;
use crate::channel::Channel;
use crate::host::Ecalls;
use crate::subscription::{Flow, UserHandler};

/// The interval at which an idle thread checks whether it has to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// A running handler thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct UserThread {
    channel: Id,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UserThread {
    /// Starts a thread for a handler. `next`: the index of the action after it; `None`: it is the
    /// last.
    pub(crate) fn start(
        ecalls: &Ecalls,
        handler: UserHandler,
        next: Option<usize>,
    ) -> Result<UserThread> {
        let channel = ecalls.channel().open()?;
        let ending = Arc::new(AtomicBool::new(false));
        let id = channel.id();
        let stop = Arc::clone(&ending);
        let thread = std::thread::Builder::new()
            .name("ecalls-handler".to_owned())
            .spawn(move || run(channel, handler, next, &stop))
            .map_err(|source| crate::Error::Os {
                action: "starting a handler thread",
                source,
            })?;
        Ok(UserThread {
            channel: id,
            ending,
            thread: Some(thread),
        })
    }

    /// The channel on which its events arrive.
    pub(crate) fn channel(&self) -> Id {
        self.channel
    }
}

impl Drop for UserThread {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A handler that panicked has ended its thread; its message was printed already.
            let _ = thread.join();
        }
    }
}

fn run(mut channel: Channel, mut handler: UserHandler, next: Option<usize>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match channel.recv_timeout(PATIENCE) {
            Ok(Some(event)) => {
                let flow = handler(&event, stop);
                if let (Flow::Continue, Some(action)) = (flow, next) {
                    resume(&channel, &event, action);
                }
            }
            Ok(None) => {}
            Err(_) => return, // the core is gone
        }
    }
}

/// Makes the kernel continue the event's chain: it reads the event from the ring entry again.
fn resume(channel: &Channel, event: &Event, action: usize) {
    let position = event.sequence.wrapping_sub(1);
    let arguments = [u64::from(event.subscription), position, action as u64];
    // The kernel refuses this if the entry was reused meanwhile, because the ring overtook a slow
    // handler. Then there is no event with which the chain could continue.
    let _ = channel.caller().fast_op(Op::Resume, arguments);
}
