//! Threads of the library that work in the background until their owner is dropped.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A thread, which is told to end when this is dropped, and waited for.
#[derive(Debug)]
pub struct Worker {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

impl Worker {
    /// Starts one. `work` gets a descriptor, and ends soon after it has become readable.
    ///
    /// # Errors
    /// [`Error::Os`]; `action` says what was to be started.
    pub fn start(
        name: &str,
        action: &'static str,
        work: impl FnOnce(&OwnedFd) + Send + 'static,
    ) -> Result<Worker> {
        let failed = |source| Error::from_io(action, source);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let stop = Arc::new(stop);
        let until = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&until))
            .map_err(failed)?;
        Ok(Worker {
            stop,
            thread: Some(thread),
            process: std::process::id(),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A forked child has a copy, whose thread is its parent's.
        if self.process != std::process::id() {
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits in a worker until something comes there; false: the worker is to end.
pub(crate) fn wait_for(stop: &OwnedFd, socket: &OwnedFd) -> bool {
    loop {
        let mut both = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Ok(_) if !both[0].revents().is_empty() => return false,
            Ok(_) if !both[1].revents().is_empty() => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
