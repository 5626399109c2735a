//! Watching sockets: a client that has a socket may receive its events. The door has checked that
//! the descriptor is a socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ecalls_abi::event::{TARGET_ALL, TARGET_WAKE_ONE};
use ecalls_abi::message::{WATCH_IF_ABSENT, WatchSocket};
use ecalls_abi::service::SocketInterest;
use ecalls_kernel::socket as kernel;

use super::{Context, No, Result, done};
use crate::client::Reply;

/// Registers a socket.
///
/// # Errors
/// The target is not the client itself.
pub fn watch(context: &mut Context<'_>, body: &WatchSocket, fds: &[OwnedFd]) -> Result<Reply> {
    let own = i32::try_from(context.client.who.pid) == Ok(body.target);
    if !own && ![TARGET_ALL, TARGET_WAKE_ONE].contains(&body.target) {
        return Err(No::invalid(
            "the target",
            body.target,
            "the own process, -1 for all or -2 for one in turn",
        ));
    }
    if body.flags & !WATCH_IF_ABSENT != 0 || body.inherit > 1 {
        return Err(No::invalid("the flags of a socket", body.flags, "0 or 1"));
    }
    let interest = SocketInterest {
        target: body.target,
        r#type: body.r#type,
        kinds: body.kinds,
        inherit: body.inherit,
        deadline_ns: body.deadline_ns,
        pid: context.client.owner.pid,
        uid: context.client.owner.uid,
        user: context.client.owner.user,
        pad: 0,
    };
    let socket = only(fds)?;
    match body.flags & WATCH_IF_ABSENT {
        0 => kernel::register(context.core, socket, &interest)?,
        _ => kernel::register_if_absent(context.core, socket, &interest)?,
    }
    Ok(done(0u32))
}

/// Ends a registration.
pub fn forget(context: &mut Context<'_>, fds: &[OwnedFd]) -> Result<Reply> {
    kernel::unregister(context.core, only(fds)?)?;
    Ok(done(0u32))
}

fn only(fds: &[OwnedFd]) -> Result<BorrowedFd<'_>> {
    match fds {
        [socket] => Ok(socket.as_fd()),
        _ => Err(No::invalid("the descriptors", fds.len(), "one socket")),
    }
}
