//! Attachments that exist while they are used: a service's programs while it has subscriptions.
//!
//! A program must be attached only once, even if several objects need it, otherwise it would raise
//! each event twice. Within a process these objects share the descriptor of the attachment;
//! programs that host the core together find each other's attachments by the ids in the core's
//! record. A daemon is the only host of its core, and needs no right to open objects by id.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Result;
use crate::kernel::sys;

/// An attachment in use; it ends with the last reference, here and in other programs.
pub(crate) type Link = Arc<OwnedFd>;

/// The attachments of this process, by the program's name.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<&'static str, Weak<OwnedFd>>>);

impl Links {
    /// The attachment of that program, if an object here uses it.
    pub(crate) fn get(&self, program: &'static str) -> Option<Link> {
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.get(program)?.upgrade()
    }

    /// Attaches a program by `attach`, or shares the attachment `id` (0: none) of another process.
    /// Returns the attachment, and its id if it is new.
    pub(crate) fn attach(
        &self,
        program: &'static str,
        fd: BorrowedFd<'_>,
        id: u32,
        attach: impl FnOnce() -> Result<OwnedFd>,
    ) -> Result<(Link, Option<u32>)> {
        let wanted = sys::program_info(fd)?.id;
        let theirs = if id == 0 {
            None
        } else {
            sys::link_by_id(id).ok()
        };
        let theirs =
            theirs.filter(|link| sys::link_ids(link.as_fd()).is_ok_and(|ids| ids.1 == wanted));
        let (link, new) = match theirs {
            Some(link) => (link, None),
            None => {
                let link = attach()?;
                let id = sys::link_ids(link.as_fd())?.0;
                (link, Some(id))
            }
        };
        let link = Arc::new(link);
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(program, Arc::downgrade(&link));
        Ok((link, new))
    }
}
