//! A thread of the guard's.

use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use crate::error::{Error, Result};

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it. It is to end when its socket tells the end of the other side.
    pub(super) fn start(
        name: &str,
        run: impl FnOnce(UnixStream) + Send + 'static,
    ) -> Result<Worker> {
        let failed = |error| Error::from_io("starting a thread of the guard", error);
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(stopped))
            .map_err(failed)?;
        Ok(Worker {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop = None;
        // A thread that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
