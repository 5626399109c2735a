//! What the rows are compared with: the same bytes by `sendmmsg`, by sockets of a group, and by
//! Zenoh alone, whose program `make relay` builds (crates/ecalls-relay/examples/zenoh-peer).

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use ecalls_abi::wire::{WIRE_PORT, Wire};
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketType, bind,
    sendmmsg, socket,
};
use serde_json::Value as Json;

use super::burst_ns;
use crate::bench::timing::{Effort, os};
use crate::exit::{Code, Failure};

/// Where another program is said to be.
const ZENOH: &str = "ECALLS_BENCH_ZENOH";

/// The same bytes to each of these hosts by one system call.
pub(super) fn send_all(effort: Effort, sinks: &[Ipv4Addr], size: usize) -> Result<f64, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 77, 0, 1), 0))?;
    let frame = vec![7; size_of::<Wire>() + size];
    let frame = [IoSlice::new(&frame)];
    let sinks: Vec<SocketAddrAny> = sinks
        .iter()
        .map(|sink| SocketAddr::from((*sink, WIRE_PORT)).as_any())
        .collect();
    let send = || {
        let mut controls: Vec<_> = sinks
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let mut messages: Vec<_> = sinks
            .iter()
            .zip(&mut controls)
            .map(|(sink, control)| MMsgHdr::new_with_addr(sink, &frame, control))
            .collect();
        let sent = sendmmsg(&socket, &mut messages, SendFlags::empty());
        match sent.map_err(|error| os("sending", error))? == sinks.len() {
            true => Ok(()),
            false => Err(Failure::new(Code::Failed, "sendmmsg did not send all")),
        }
    };
    burst_ns(effort, send, |_| Ok(true))
}

/// A socket of a group: one packet reaches them all.
pub(super) fn member(group: SocketAddr, own: Ipv4Addr) -> Result<UdpSocket, Failure> {
    let failed = |error| os("opening a socket", error);
    let opened = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(failed)?;
    set_socket_reuseaddr(&opened, true).map_err(failed)?;
    bind(&opened, &group).map_err(failed)?;
    let socket = UdpSocket::from(opened);
    socket.set_nonblocking(true)?;
    if let SocketAddr::V4(group) = group {
        socket.join_multicast_v4(group.ip(), &own)?;
    }
    Ok(socket)
}

/// The program that speaks Zenoh, if it has been built.
pub(super) fn zenoh() -> Option<PathBuf> {
    built("examples/zenoh-peer", ZENOH)
}

/// A program that `make relay` has built, or that an environment variable names.
pub(super) fn built(name: &str, variable: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let target = own.parent()?.parent()?;
    let named = std::env::var_os(variable).map(PathBuf::from);
    let program = named.unwrap_or_else(|| target.join("relay/release").join(name));
    program.is_file().then_some(program)
}

/// Runs the program that speaks Zenoh; what it says.
pub(super) fn ask_zenoh(arguments: &[&str]) -> Result<Option<Json>, Failure> {
    let Some(program) = zenoh() else {
        return Ok(None);
    };
    said(Command::new(program).args(arguments)).map(Some)
}

/// The JSON that a command prints.
pub(super) fn said(command: &mut Command) -> Result<Json, Failure> {
    let output = command
        .output()
        .map_err(|error| os("starting a peer", error))?;
    let failed = |why: String| Failure::new(Code::Failed, format!("{command:?}: {why}"));
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Why there is no value without that program.
pub(super) const NO_ZENOH: &str = "`make relay` builds the program for this row";
