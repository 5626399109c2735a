//! The guard's side of abi/guard.h: a thread gives the page to the server that asks for it, and
//! forgets what is in it when that server has gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use ecalls_abi::guard::{GUARD_NAME, GuardPage};
use libbpf_rs::MapHandle;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, sendmsg, socket_with, sockopt,
};

use super::state;
use crate::error::{Error, Result};
use crate::kernel::table::Mapped;
use crate::kernel::worker::{Worker, wait_for};

/// Servers that may wait while another one has the page.
const BACKLOG: i32 = 16;

/// What the thread has.
struct Giver {
    listener: OwnedFd,
    table: MapHandle,
    page: MapHandle,
    mapped: Mapped<GuardPage>,
}

/// Starts it; `None`: some other program has the name of this port.
pub(super) fn start(port: u16, table: MapHandle, page: MapHandle) -> Result<Option<Worker>> {
    let failed = |error: Errno| Error::from_io("listening for the server", error.into());
    let name = format!("{GUARD_NAME}{port}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.map_err(failed)?;
    match bind(&listener, &address) {
        Err(Errno::ADDRINUSE) => return Ok(None),
        bound => bound.map_err(failed)?,
    }
    listen(&listener, BACKLOG).map_err(failed)?;
    let mapped = Mapped::map(&page, 1)?;
    let giver = Giver {
        listener,
        table,
        mapped,
        page,
    };
    let action = "starting the thread that gives the page of the guard";
    Worker::start("guard-page", action, move |stop| giver.run(stop)).map(Some)
}

impl Giver {
    fn run(&self, stop: &OwnedFd) {
        while wait_for(stop, &self.listener) {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                // Whoever may not have it, or has gone, is closed at once.
                Ok(server) if self.give(&server).is_ok() => {
                    // It says nothing: what comes is its end.
                    if !wait_for(stop, &server) {
                        return;
                    }
                    self.forget();
                }
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // Without descriptors, a moment later.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
            }
        }
    }

    fn give(&self, server: &OwnedFd) -> io::Result<()> {
        let peer = sockopt::socket_peercred(server)?;
        let owner = state(&self.table).map_err(io::Error::other)?.owner;
        if !peer.uid.is_root() && peer.uid.as_raw() != owner {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let page = [self.page.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&page));
        let byte = [io::IoSlice::new(&[0])];
        sendmsg(server, &byte, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn forget(&self) {
        for offset in (0..size_of::<GuardPage>()).step_by(8) {
            self.mapped.word(0, offset).store(0, Ordering::Relaxed);
        }
    }
}
