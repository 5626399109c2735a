//! The client of the rows: a host without a network stack, at its end of the cable. Its requests
//! are packets that lie ready, and it takes replies as they come off the cable (packet(7)). A
//! client with sockets has less to spare than a server that needs neither: its own processor's time
//! would be what is measured.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, socket};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The addresses of Ethernet of the server's and of the client's end.
pub(super) const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const PORT: u16 = 40_000;
/// Where in a packet something begins: Ethernet has 14 bytes, IPv4 20, UDP 8.
const IP: usize = 14;
const UDP: usize = 34;
const DATA: usize = 42;

pub(super) struct Client {
    end: OwnedFd,
    from: SocketAddrV4,
    to: SocketAddrV4,
}

/// A request as a packet, whose data begin with a number.
#[derive(Clone, Debug)]
pub(super) struct Request {
    packet: Vec<u8>,
    /// Of all that UDP's checksum is of, with the number 0.
    sum: u32,
}

impl Client {
    /// At this interface of the thread's network.
    pub(super) fn open(interface: &str, address: Ipv4Addr, to: SocketAddrV4) -> io::Result<Client> {
        let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
        let end = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthIp)?;
        let found = getifaddrs()?.find_map(|one| {
            let address = one.address.filter(|_| one.interface_name == interface)?;
            address.as_link_addr().copied()
        });
        let found = found.ok_or_else(|| io::Error::other(format!("no interface {interface}")))?;
        bind(end.as_raw_fd(), &found)?;
        let from = SocketAddrV4::new(address, PORT);
        Ok(Client { end, from, to })
    }

    /// A reply that takes longer is an error.
    pub(super) fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.end, Timeout::Recv, Some(time))?)
    }

    pub(super) fn request(&self, data: &[u8]) -> Request {
        Request::new(self.from, self.to, data)
    }

    pub(super) fn send(&self, request: &mut Request, number: u16) -> io::Result<()> {
        let packet = request.numbered(number);
        Ok(send(&self.end, packet, SendFlags::empty()).map(drop)?)
    }

    /// The number of the next reply.
    pub(super) fn receive(&self) -> io::Result<u16> {
        self.take(RecvFlags::empty())
    }

    /// The same of one that has arrived.
    pub(super) fn receive_next(&self) -> io::Result<Option<u16>> {
        match self.take(RecvFlags::DONTWAIT) {
            Ok(number) => Ok(Some(number)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&self, flags: RecvFlags) -> io::Result<u16> {
        let mut packet = [0; 2000];
        loop {
            let (bytes, _) = recv(&self.end, &mut packet, flags)?;
            if let Some(number) = self.reply(&packet[..bytes]) {
                return Ok(number);
            }
        }
    }

    fn reply(&self, packet: &[u8]) -> Option<u16> {
        let is = |at: usize, bytes: &[u8]| packet.get(at..at + bytes.len()) == Some(bytes);
        let of_server = is(IP + 9, &[17])
            && is(IP + 12, &self.to.ip().octets())
            && is(UDP, &self.to.port().to_be_bytes())
            && is(UDP + 2, &PORT.to_be_bytes());
        let number = packet.get(DATA..DATA + 2).filter(|_| of_server)?;
        Some(u16::from_be_bytes([number[0], number[1]]))
    }
}

impl Request {
    fn new(from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Request {
        let length = |before: usize| ((before + data.len()) as u16).to_be_bytes();
        let addresses = [from.ip().octets(), to.ip().octets()].concat();
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0].to_vec();
        ip[2..4].copy_from_slice(&length(DATA - IP));
        ip.extend(&addresses);
        let checksum = checksum(sum(&ip));
        ip[10..12].copy_from_slice(&checksum);
        let udp = [&ports[..], &length(DATA - UDP), &[0, 0], data].concat();
        Request {
            sum: sum(&addresses) + 17 + sum(&length(DATA - UDP)) + sum(&udp),
            packet: [&MACS[0][..], &MACS[1], &[8, 0], &ip, &udp].concat(),
        }
    }

    /// As it goes with this number, which the data begin with unless there are none.
    fn numbered(&mut self, number: u16) -> &[u8] {
        let mut sum = self.sum;
        if let Some(place) = self.packet.get_mut(DATA..DATA + 2) {
            place.copy_from_slice(&number.to_be_bytes());
            sum += u32::from(number);
        }
        self.packet[UDP + 6..DATA].copy_from_slice(&checksum(sum));
        &self.packet
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    let word = |two: &[u8]| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low));
    words.map(word).sum()
}

/// Of the Internet (RFC 1071). UDP's is never 0, which would say that there is none.
fn checksum(sum: u32) -> [u8; 2] {
    let once = (sum >> 16) + (sum & 0xffff);
    let folded = !((once >> 16) + once) as u16;
    if folded == 0 { u16::MAX } else { folded }.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_checksums_of_their_numbers() {
        let at = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 79, 0, last), port);
        for data in [&b""[..], b"\0\0get a", b"\0\0get ab"] {
            let mut request = Request::new(at(2, PORT), at(1, 11_211), data);
            for number in [0, 1, 0xfffe, 0xffff] {
                let packet = request.numbered(number).to_vec();
                let whole = |sum: u32| checksum(sum) == [0xff; 2];
                assert!(whole(sum(&packet[IP..UDP])), "of IP: {packet:?}");
                let udp = &packet[UDP..];
                let pseudo = sum(&packet[IP + 12..UDP]) + 17 + udp.len() as u32;
                assert!(whole(pseudo + sum(udp)), "of UDP: {packet:?}");
            }
        }
    }
}
