//! Channels among hosts (KECho), which this program opens on its host. Man page:
//! ecalls_net_channel(3).
//!
//! On each host the channel is a service of the same name: programs subscribe to it by
//! ecalls_subscribe(), and a filter at the sink (IN) is a handler in E-code there.

use std::ffi::{c_char, c_int};
use std::net::IpAddr;

use ecalls::Ecalls;
use ecalls_abi::downcall::ATTRIBUTES;
use ecalls_channel::Channel;
use ecalls_channel::cluster::{ClusterChannel, Wanted};
use ecalls_channel::source::{LaneStat, channels};

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{
    Options, give, optional_text, options, output, reference, take_back, text, texts,
    write_optional,
};

/// Which channel among hosts to open, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetChannelOptions {
    /// Size of this struct.
    pub size: u32,
    /// With a cluster, 1: a channel that no host has open yet becomes a reliable one, whose
    /// frames go by the relays, which repeat what is lost. 0: one of the lane.
    pub reliable: u32,
    /// Its name, which is that of its service on this host, too.
    pub name: *const c_char,
    /// Format of its data and names of its kinds, as of ecalls_service_register(). With a
    /// cluster, format NULL: those that the other hosts have.
    pub format: *const c_char,
    /// See format.
    pub kinds: *const c_char,
    /// The network interface on which its frames arrive, whose hosts are trusted. With a
    /// cluster, NULL: the one that the relay's configuration names.
    pub interface: *const c_char,
    /// The cluster whose hosts are its sinks, by this host's relay. NULL: its sinks are added by
    /// ecalls_net_channel_add_sink().
    pub cluster: *const c_char,
}

// SAFETY: repr(C), begins with a u32, integers and pointers, no padding.
unsafe impl Options for NetChannelOptions {
    const LEAST: usize = 48;
}

const _: () = assert!(
    size_of::<NetChannelOptions>() == NetChannelOptions::LEAST,
    "the first version"
);

#[derive(Debug)]
enum Opened {
    ByItself(Box<Channel>),
    InCluster(ClusterChannel),
}

/// `ecalls_net_channel_t`.
#[derive(Debug)]
pub struct NetChannelHandle {
    opened: Opened,
    ecalls: Ecalls,
    name: String,
}

impl NetChannelHandle {
    fn channel(&self) -> &Channel {
        match &self.opened {
            Opened::ByItself(channel) => channel,
            Opened::InCluster(cluster) => cluster.channel(),
        }
    }

    fn stat(&self) -> Outcome<LaneStat> {
        let (all, ..) = channels(&self.ecalls)?;
        let own = all.into_iter().find(|stat| stat.name == self.name);
        own.ok_or_else(|| Failure::new(libc::ESHUTDOWN, "the channel is gone"))
    }
}

/// Opens a channel among hosts (KECho): frames that other hosts send become events of a service
/// with its name, which this program registers, in the kernel and without a process.
/// -EPERM: without root or CAP_NET_ADMIN; -EINVAL: the name is taken, the interface unknown, or
/// other hosts have another format; -ENOENT: no relay runs, or no host of the cluster has the
/// channel open and there is no format; -ENOSYS: before Linux 6.6.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_open(
    ecalls: *const HostHandle,
    options: *const NetChannelOptions,
    channel: *mut *mut NetChannelHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { self::options(options, "the options of the channel") }?;
        let place = output(channel, "the place for the channel")?;
        // SAFETY: what the options point to is as the root's Safety demands.
        let opened = unsafe { open(&host.0, &given) }?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, opened) };
        Ok(0)
    })
}

/// Closes the channel on this host: its service ends, and its frames are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_close(channel: *mut NetChannelHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(channel) };
}

/// Writes this host's number, as events on other hosts name it (ECALLS_EVENT_HOST).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_host(
    channel: *const NetChannelHandle,
    host: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(host, "the place for the host")?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(channel.channel().host()) };
        Ok(0)
    })
}

/// Makes the host with this IPv4 address a sink: it gets what publishers submit to the channel's
/// sinks, and the events of subscriptions with the handler "remote". A sink stays one.
/// -ENOSPC: frames have been sent to 64 other addresses; -ENOSYS: an IPv6 address, or an interface
/// without Ethernet headers; those of the network, without a route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_add_sink(
    channel: *const NetChannelHandle,
    address: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        // SAFETY: a text (the root's Safety).
        let address = ip(unsafe { text(address, "the sink's address") }?)?;
        channel.channel().add_sink(address)?;
        Ok(0)
    })
}

/// The host with this address is a sink no more. Returns 1 if it was one, 0 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_remove_sink(
    channel: *const NetChannelHandle,
    address: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        // SAFETY: a text (the root's Safety).
        let address = ip(unsafe { text(address, "the sink's address") }?)?;
        Ok(channel.channel().remove_sink(address)?.into())
    })
}

/// Returns the number of the channel's sinks at this moment: those that were added, or the other
/// hosts of its cluster that have it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_sinks(channel: *const NetChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let sinks = channel.stat()?.channel.sinks.count_ones();
        Ok(sinks.cast_signed())
    })
}

/// Makes a text in E-code the channel's filter at the source (OUT, KECho §2.3): it sees each event
/// and all sinks with their attributes, whose names are given in the order of their numbers, and
/// chooses those that get it. Replaced while events pass; static variables of the same name and
/// type keep their values. `text` NULL: no filter, each event goes to all sinks.
/// -EINVAL: the text has errors, an output or requests; then the former filter remains.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_set_out(
    channel: *const NetChannelHandle,
    text: *const c_char,
    attributes: *const *const c_char,
    attribute_count: u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        if text.is_null() {
            channel.channel().clear_out()?;
            return Ok(0);
        }
        // SAFETY: a text (the root's Safety).
        let text = unsafe { self::text(text, "the filter") }?;
        // SAFETY: so many texts (the root's Safety).
        let names = unsafe { texts(attributes, attribute_count, ATTRIBUTES, "attribute") }?;
        channel.channel().set_out(text, &names)?;
        Ok(0)
    })
}

/// Writes what another host has told of itself last: the values of its attributes 0 to
/// ECALLS_ATTRIBUTES - 1, and when that arrived, ns of CLOCK_MONOTONIC; 0: it has told none.
/// `told_ns` may be NULL. -ENOENT: no frame of that host has arrived.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_net_channel_told(
    channel: *const NetChannelHandle,
    host: u64,
    values: *mut u64,
    told_ns: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(values, "the array of values")?;
        let stat = channel.stat()?;
        let source = stat.sources.iter().find(|(source, _)| *source == host);
        let (_, source) = source
            .ok_or_else(|| Failure::new(libc::ENOENT, "no frame of that host has arrived"))?;
        // SAFETY: an output with so many numbers (the root's Safety).
        unsafe { place.cast::<[u64; ATTRIBUTES]>().write(source.value) };
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(told_ns, source.told_ns) };
        Ok(0)
    })
}

/// An address.
pub(crate) fn ip(text: &str) -> Outcome<IpAddr> {
    text.parse()
        .map_err(|_| Failure::invalid(format!("{text:?} is no address of a host")))
}

/// # Safety
/// What `given` points to is as the crate root demands.
unsafe fn open(ecalls: &Ecalls, given: &NetChannelOptions) -> Outcome<NetChannelHandle> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(given.name, "the channel's name") }?;
    // SAFETY: the caller's promise.
    let format = unsafe { optional_text(given.format, "the format") }?;
    // SAFETY: the caller's promise.
    let kinds = unsafe { optional_text(given.kinds, "the kinds") }?;
    // SAFETY: the caller's promise.
    let interface = unsafe { optional_text(given.interface, "the interface") }?;
    // SAFETY: the caller's promise.
    let cluster = unsafe { optional_text(given.cluster, "the cluster") }?;
    let reliable = match given.reliable {
        0 => false,
        1 if !cluster.is_empty() => true,
        1 => return Err(Failure::invalid("reliable is 1: only in a cluster")),
        other => return Err(Failure::invalid(format!("reliable is {other}: 0 or 1"))),
    };
    let opened = if cluster.is_empty() {
        Opened::ByItself(Box::new(Channel::open(
            ecalls, name, format, kinds, interface,
        )?))
    } else {
        let wanted = Wanted {
            cluster,
            name,
            events: (!given.format.is_null()).then_some((format, kinds)),
            interface: (!interface.is_empty()).then_some(interface),
            reliable,
        };
        // Who has joined, ecalls_net_channel_sinks() says.
        Opened::InCluster(ClusterChannel::open(ecalls, &wanted, drop)?)
    };
    Ok(NetChannelHandle {
        opened,
        ecalls: ecalls.clone(),
        name: name.to_owned(),
    })
}
