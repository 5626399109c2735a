//! What watching a server takes beside subscriptions: threads that read at intervals, and the
//! threshold of the sched service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_abi::service::SERVICE_SCHED;
use ecalls_kernel::builtin;

/// A thread that calls a function at intervals; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Calls `read` every `pace`, and does so at least once.
    pub(crate) fn start(
        name: &str,
        pace: Duration,
        mut read: impl FnMut() + Send + 'static,
    ) -> ecalls::Result<Reader> {
        let ending = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ending);
        let thread = thread::Builder::new()
            .name(format!("read-{name}"))
            .spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    read();
                    thread::sleep(pace);
                }
            })
            .map_err(|source| ecalls::Error::Os {
                action: "starting a reader",
                source,
            })?;
        Ok(Reader {
            ending,
            thread: Some(thread),
        })
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A reader that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

/// The sched service's threshold, of which a machine has one; it is reset to its default at the
/// end.
#[derive(Debug)]
pub(crate) struct Threshold(Ecalls);

impl Threshold {
    /// Shorter waits for a CPU are not reported.
    pub(crate) fn set(ecalls: &Ecalls, delay_ns: u64) -> ecalls::Result<Threshold> {
        ecalls.access().set_parameter(SERVICE_SCHED, delay_ns)?;
        Ok(Threshold(ecalls.clone()))
    }
}

impl Drop for Threshold {
    fn drop(&mut self) {
        let core = self.0.access();
        // A core that is gone has no threshold.
        if let Ok(parameter) = builtin::parameter(SERVICE_SCHED) {
            let _ = core.set_parameter(SERVICE_SCHED, parameter.default_ns);
        }
    }
}
