//! A network interface of this process's network namespace, and the sockets that send frames
//! through one.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use crate::error::{Error, Result};
use crate::kernel::sys;

/// Attempts to attach a program, or to share an attachment that another process gives up meanwhile.
const ATTEMPTS: u32 = 8;

/// Where a kernel says that interrupts are threads, which can be preempted.
const REALTIME: &str = "/sys/kernel/realtime";

/// That a program on what an interface receives is never preempted, as `feature` needs it.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn check_interrupts(feature: &'static str) -> Result<()> {
    match std::fs::read(REALTIME).is_ok_and(|text| text.starts_with(b"1")) {
        false => Ok(()),
        true => Err(Error::Unsupported {
            feature,
            since: "a kernel without PREEMPT_RT",
        }),
    }
}

/// The direction of packets on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

impl Way {
    fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Way::In => libbpf_sys::BPF_TCX_INGRESS,
            Way::Out => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// An interface, looked up by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    /// Its hardware address; zeros if it has none.
    pub(crate) address: [u8; 6],
    /// Whether its packets have Ethernet headers.
    pub(crate) ethernet: bool,
}

impl Interface {
    /// The interface of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none.
    pub(crate) fn named(name: &str) -> Result<Interface> {
        let error =
            |errno: rustix::io::Errno| Error::from_io("looking up an interface", errno.into());
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(error)?;
        let index = name_to_index(&socket, name).map_err(|_| Error::Invalid {
            what: "the network interface",
            given: name.to_owned(),
            expected: "one of this network namespace (`ip link` lists them)",
        })?;
        let (address, kind) = address_of(socket.as_fd(), name)?;
        Ok(Interface {
            index,
            address,
            ethernet: matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
        })
    }

    /// Attaches a program to what the interface receives or sends, until the last descriptor of the
    /// attachment is closed. The kernel attaches a program once, so channels on one interface share
    /// this.
    pub(crate) fn attach(self, program: BorrowedFd<'_>, way: Way) -> Result<OwnedFd> {
        let id = sys::program_info(program)?.id;
        for _ in 0..ATTEMPTS {
            match sys::attach_interface(program, self.index, way.kind()) {
                Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::EEXIST) => {}
                other => return other,
            }
            // It may end before it is opened here: then there is room for another one.
            let links = sys::interface_links(self.index, way.kind())?;
            let link = links.into_iter().find(|(program, _)| *program == id);
            if let Some(Ok(link)) = link.map(|(_, link)| sys::link_by_id(link)) {
                return Ok(link);
            }
        }
        Err(Error::Closed("the program on the interface"))
    }
}

impl Interface {
    /// This host's address towards another one behind the interface.
    pub(crate) fn source(self, to: Ipv4Addr) -> Result<Ipv4Addr> {
        let action = "finding the way to a sink";
        if !self.ethernet {
            return Err(Error::Unsupported {
                feature: "sending in the kernel on an interface without Ethernet headers",
                since: "a publisher sends there",
            });
        }
        let failed = |error| Error::from_io(action, error);
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
        let index = i32::try_from(self.index).unwrap_or(0);
        set_number(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTOIFINDEX,
            index,
        )?;
        socket.connect((to, 1)).map_err(failed)?;
        match socket.local_addr().map_err(failed)?.ip() {
            IpAddr::V4(ip) => Ok(ip),
            IpAddr::V6(_) => Err(Error::Closed("the way to a sink")),
        }
    }

    /// A socket for whole packets on this interface.
    pub(crate) fn packets(self) -> Result<PacketSocket> {
        // SAFETY: takes numbers only. Protocol 0: it receives nothing.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last_os("opening a socket for packets"));
        }
        // SAFETY: a new descriptor that nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain struct, for which zeros are valid.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as libc::sa_family_t;
        to.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        to.sll_ifindex = i32::try_from(self.index).unwrap_or(0);
        Ok(PacketSocket { socket, to })
    }
}

/// A socket that sends whole packets of IPv4, Ethernet header included, on one interface.
pub(crate) struct PacketSocket {
    socket: OwnedFd,
    to: libc::sockaddr_ll,
}

impl PacketSocket {
    /// Sends a packet.
    pub(crate) fn send(&self, packet: &[u8]) -> std::io::Result<()> {
        // SAFETY: the packet and the address are alive and as long as said.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const self.to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        match sent {
            0.. => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// The hardware address of an interface and its kind, `ARPHRD_*`.
fn address_of(socket: BorrowedFd<'_>, name: &str) -> Result<([u8; 6], u16)> {
    let asked = ask(socket, name, libc::SIOCGIFHWADDR);
    let found =
        asked.map_err(|error| Error::from_io("reading the address of an interface", error))?;
    let address = std::array::from_fn(|at| found.sa_data[at].to_ne_bytes()[0]);
    Ok((address, found.sa_family))
}

/// The first IPv4 address of an interface of this network namespace; `None`: it has none.
///
/// # Errors
/// [`Error::Invalid`] if there is no such interface.
pub fn ip4_of(name: &str) -> Result<Option<Ipv4Addr>> {
    let action = "reading the address of an interface";
    Interface::named(name)?;
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| Error::from_io(action, errno.into()))?;
    match ask(socket.as_fd(), name, libc::SIOCGIFADDR) {
        // A port comes first.
        Ok(found) => Ok(Some(Ipv4Addr::from(std::array::from_fn(|at| {
            found.sa_data[2 + at].to_ne_bytes()[0]
        })))),
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(Error::from_io(action, error)),
    }
}

/// What the kernel answers to one of the requests for an address of an interface, whose name
/// name_to_index() has accepted.
fn ask(
    socket: BorrowedFd<'_>,
    name: &str,
    request: libc::Ioctl,
) -> std::io::Result<libc::sockaddr> {
    // SAFETY: a plain struct, for which zeros are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: `asked` is the struct that these ioctls read and write, with a name that ends with 0.
    let error = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut asked) };
    if error < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the ioctl has filled this member, which the requests for an address share.
    Ok(unsafe { asked.ifr_ifru.ifru_hwaddr })
}

/// A socket that sends from `port` to addresses of the same family as `to`. It never sends parts of
/// a packet: one that is too long for the way is refused with EMSGSIZE. It receives nothing.
///
/// # Errors
/// [`Error::Denied`] without the right to send from a privileged port.
pub fn sender(port: u16, to: IpAddr) -> Result<UdpSocket> {
    let error = |errno: rustix::io::Errno| match errno {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Error::Denied {
            action: "sending frames",
            privilege: "root, or CAP_NET_BIND_SERVICE",
        },
        _ => Error::from_io("opening a socket for frames", errno.into()),
    };
    let (family, any) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, IpAddr::from([0; 4])),
        IpAddr::V6(_) => (AddressFamily::INET6, IpAddr::from([0; 16])),
    };
    let socket = socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::UDP),
    )
    .map_err(error)?;
    // Several programs of a host publish on its channels.
    set_socket_reuseaddr(&socket, true).map_err(error)?;
    set_socket_recv_buffer_size(&socket, 0).map_err(error)?;
    match to {
        IpAddr::V4(_) => set_number(
            socket.as_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )?,
        IpAddr::V6(_) => set_number(
            socket.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        )?,
    }
    bind(&socket, &std::net::SocketAddr::new(any, port)).map_err(error)?;
    Ok(UdpSocket::from(socket))
}

fn set_number(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<()> {
    // SAFETY: the option's value is an int, which is alive.
    let error = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match error {
        0 => Ok(()),
        _ => Err(Error::last_os("opening a socket for frames")),
    }
}
