//! A cable between two hosts that loses, repeats and reorders frames, as networks do, with numbers
//! that chance chooses and that are the same in every run. (The kernel's netem is not in all
//! kernels, and does not say what it has done.)
//!
//! It reads what each host sends at the other end of its interface, and sends it, later or not at
//! all, at the other end of the other host's.

use std::os::fd::AsRawFd;
use std::time::Instant;

use ecalls_abi::wire::Wire;
use ecalls_abi::zerocopy::FromBytes;

use crate::harness::PATIENCE;
use crate::tap::Tap;

/// Where a frame is in a packet: behind the headers of Ethernet, IPv4 and UDP.
const FRAME: usize = 42;
/// Frames that the cable holds, of which chance chooses the next one.
const HELD: usize = 12;
/// A frame that is held so long is older than what the receiver's window knows.
const LONG: usize = 200;

/// One end: a tap on the peer of a host's interface.
struct End(Tap);

/// The cable, and the state of its dice.
pub(crate) struct Cable {
    ends: [End; 2],
    random: u64,
}

/// What became of the frames from one end to the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Numbers of the frames in the order in which they came out.
    pub(crate) numbers: Vec<u64>,
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
}

impl Cable {
    /// Between these interfaces of this thread's namespace.
    pub(crate) fn between(ports: [&str; 2], seed: u64) -> Cable {
        Cable {
            ends: ports.map(End::at),
            random: seed,
        }
    }

    /// Carries `count` frames for `host` from one end to the other, and then those that it holds.
    pub(crate) fn carry(&mut self, from: usize, host: [u8; 6], count: u64) -> Passed {
        let (mut held, mut late) = (Vec::new(), None);
        let (mut seen, start) = (0, Instant::now());
        let mut passed = Passed::default();
        while seen < count {
            let Some(packet) = self.ends[from].receive() else {
                assert!(start.elapsed() < PATIENCE, "{seen} of {count} frames");
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            };
            if number_of(&packet).is_none() || packet[..6] != host {
                continue;
            }
            seen += 1;
            match self.chance(20) {
                0 => passed.lost += 1,
                1 | 2 => {
                    passed.repeated += 1;
                    held.extend([packet.clone(), packet]);
                }
                3 if late.is_none() => late = Some((seen, packet)),
                _ => held.push(packet),
            }
            if late
                .as_ref()
                .is_some_and(|(since, _)| seen - since > LONG as u64)
            {
                held.extend(late.take().map(|(_, packet)| packet));
            }
            while held.len() > HELD {
                self.pass(1 - from, &mut held, &mut passed);
            }
        }
        held.extend(late.map(|(_, packet)| packet));
        while !held.is_empty() {
            self.pass(1 - from, &mut held, &mut passed);
        }
        passed
    }

    fn pass(&mut self, to: usize, held: &mut Vec<Vec<u8>>, passed: &mut Passed) {
        let packet = held.swap_remove(self.chance(held.len()));
        self.ends[to].send(&packet);
        passed.numbers.extend(number_of(&packet));
    }

    /// One of so many (xorshift).
    fn chance(&mut self, of: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % of
    }
}

/// The number of the frame in a packet, if there is one.
fn number_of(packet: &[u8]) -> Option<u64> {
    if packet.len() < FRAME || packet[12..15] != [8, 0, 0x45] || packet[34..36] != [3, 0x92] {
        return None;
    }
    let (wire, _) = Wire::read_from_prefix(&packet[FRAME..]).ok()?;
    Some(wire.sequence)
}

impl End {
    fn at(port: &str) -> End {
        let end = End(Tap::open());
        let fd = end.0.0.as_raw_fd();
        let name = std::ffi::CString::new(port).expect("a name");
        // SAFETY: a text that ends with 0.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: a plain struct, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an address that is as long as said.
        let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{port}");
        // Nothing may be lost that the cable does not lose.
        let bytes: i32 = 64 << 20;
        // SAFETY: a number that is as long as said.
        let set = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const bytes).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0, "root may");
        end
    }

    /// The next packet that has come to this end; what the cable itself sends goes by, too.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut packets = std::iter::from_fn(|| self.0.receive());
        packets.find_map(|(sent, packet)| (!sent).then_some(packet))
    }

    fn send(&self, packet: &[u8]) {
        // SAFETY: the buffer is as long as said.
        let sent = unsafe {
            libc::send(
                self.0.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
            )
        };
        assert_eq!(usize::try_from(sent).ok(), Some(packet.len()), "sent");
    }
}
