//! Submitting to a loop from other threads.

use std::fmt;
use std::sync::Arc;

use crate::descriptors::Bell;
use crate::error::{Error, Result};
use crate::event::{Turn, When, timer};
use crate::mailbox::{Mailbox, Refused, WAITING_MAX};

/// An event that another thread submits.
pub(crate) struct Letter {
    pub(crate) when: When,
    pub(crate) callback: Box<dyn FnMut(&Turn<'_>) + Send>,
}

/// Submits events to a loop from any thread. While one exists, the loop does not end for lack of
/// work.
pub struct Remote {
    mailbox: Arc<Mailbox<Letter>>,
    bell: Bell,
}

impl Remote {
    pub(crate) fn new(mailbox: Arc<Mailbox<Letter>>, bell: Bell) -> Remote {
        mailbox.join();
        Remote { mailbox, bell }
    }

    /// Submits an event. The callback runs on the loop's thread. This makes a system call only if
    /// the loop has slept since the last submission by another thread.
    ///
    /// # Errors
    /// [`Error::Closed`] if the loop is gone, [`Error::LimitReached`] if [`crate::REMOTE_MAX`] such
    /// events wait already.
    pub fn submit(
        &self,
        when: When,
        callback: impl FnMut(&Turn<'_>) + Send + 'static,
    ) -> Result<()> {
        let callback = Box::new(callback);
        match self.mailbox.put(Letter { when, callback }) {
            Ok(true) => self.bell.ring(),
            Ok(false) => {}
            Err(Refused::Closed) => return Err(Error::Closed),
            Err(Refused::Full) => {
                return Err(Error::LimitReached {
                    which: "events from other threads waiting",
                    limit: WAITING_MAX,
                });
            }
        }
        Ok(())
    }

    /// Stops the loop by a timer with release time 0, that is, after the running event and before
    /// all others except earlier timers with release time 0.
    ///
    /// # Errors
    /// As of [`Remote::submit`].
    pub fn stop(&self) -> Result<()> {
        self.submit(timer(0), |turn| turn.stop())
    }
}

impl Clone for Remote {
    fn clone(&self) -> Remote {
        Remote::new(Arc::clone(&self.mailbox), self.bell.clone())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.mailbox.leave() {
            self.bell.ring();
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
