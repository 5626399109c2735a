//! A text that answers datagrams, run in user space: what the kernel would do with a datagram that
//! is given. [`Answers`](super::Answers) finds cells by it; a service can try its text by itself,
//! without privileges, or ask it about a datagram that came up to its socket.

use std::net::{IpAddr, SocketAddr};

use ::ecode::Compiled;
use ::ecode::ir::Program;
use ::ecode::run::{Machine, Memory};
use ecalls_abi::answer::{ANSWER_DROP, ANSWER_PREFIX, AnswerInput};
use ecalls_abi::zerocopy::IntoBytes;

use super::compile;
use crate::{Result, now_ns};

/// What a text says of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It gets the reply of this cell, if there is such a cell and its reply is one to it.
    Cell(u32),
    /// It goes up to the socket: also by a number that is no cell's, and if the run fails.
    Up,
    /// It ends here.
    Drop,
}

/// A text and its variables, which are not those of the kernel's runs.
///
/// With the feature `native` it is machine code, where this process may make that.
///
/// ```
/// use ecalls::answer::{AnswerText, Said};
/// let mut text = AnswerText::new("remote_ip[0] != 10 ? DROP : length == 4 ? 0 : UP")?;
/// let neighbour = "10.0.0.2:5000".parse()?;
/// assert_eq!(text.says(b"ping", Some(neighbour)), Said::Cell(0));
/// assert_eq!(text.says(b"hello", Some(neighbour)), Said::Up);
/// assert_eq!(text.says(b"ping", Some("192.0.2.1:5000".parse()?)), Said::Drop);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AnswerText {
    machine: Machine,
    memory: Memory,
}

impl AnswerText {
    /// Compiles a text. No privilege is needed.
    ///
    /// # Errors
    /// [`crate::Error::Ecode`] with the errors of the text.
    pub fn new(text: &str) -> Result<AnswerText> {
        Ok(AnswerText::of(&compile(text)?.0))
    }

    pub(super) fn of(compiled: &Compiled) -> AnswerText {
        AnswerText {
            machine: machine(&compiled.program),
            memory: Memory::new(&compiled.program),
        }
    }

    /// What the text says of a datagram of this sender, whole as it arrives at the socket. Without
    /// a sender, family, address and port are 0.
    pub fn says(&mut self, datagram: &[u8], sender: Option<SocketAddr>) -> Said {
        let mut input = AnswerInput {
            length: u32::try_from(datagram.len()).unwrap_or(u32::MAX),
            family: 0,
            remote_port: sender.map_or(0, |sender| sender.port().to_be()),
            remote_ip: [0; 16],
            data: [0; ANSWER_PREFIX],
        };
        let family = match sender.map(|sender| sender.ip()) {
            Some(IpAddr::V4(ip)) => {
                input.remote_ip[..4].copy_from_slice(&ip.octets());
                libc::AF_INET
            }
            Some(IpAddr::V6(ip)) => {
                input.remote_ip = ip.octets();
                libc::AF_INET6
            }
            None => libc::AF_UNSPEC,
        };
        input.family = family as u16;
        let seen = datagram.len().min(ANSWER_PREFIX);
        input.data[..seen].copy_from_slice(&datagram[..seen]);
        self.memory.set_now(now_ns());
        self.memory.set_input(input.as_bytes());
        match self.machine.run(&mut self.memory) {
            Ok(said) if said == i64::from(ANSWER_DROP) => Said::Drop,
            Ok(said) => u32::try_from(said).map_or(Said::Up, Said::Cell),
            Err(_) => Said::Up,
        }
    }
}

#[cfg(feature = "native")]
fn machine(program: &Program) -> Machine {
    ecode_native::machine(program).0
}

#[cfg(not(feature = "native"))]
fn machine(program: &Program) -> Machine {
    Machine::new(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, datagram: &[u8], sender: Option<&str>) -> Said {
        let mut text = AnswerText::new(text).expect("a text");
        let sender = sender.map(|sender| sender.parse().expect("an address"));
        text.says(datagram, sender)
    }

    #[test]
    fn numbers_that_are_no_cells_and_failed_runs_are_up() {
        for text in [
            "UP",
            "-7",
            "1000000000000",
            "data[length]",
            "if (length > 999) return 3;",
        ] {
            assert_eq!(says(text, &[1; 144], None), Said::Up, "{text}");
        }
        assert_eq!(says("DROP", b"", None), Said::Drop);
        assert_eq!(
            says("length > 2 ? data[2] : UP", b"..!", None),
            Said::Cell(33)
        );
        assert!(AnswerText::new("lenght").is_err());
    }

    #[test]
    fn sender_and_the_whole_length_are_there_as_in_the_kernel() {
        let port = "remote_port == 0x8813 && family == 2 && remote_ip[3] == 9 && !remote_ip[4]";
        assert_eq!(says(port, b"", Some("10.0.0.9:5000")), Said::Cell(1));
        let six = "family == 10 && remote_ip[15] == 1 && length == 1300 && data[143] == 7";
        assert_eq!(says(six, &[7; 1300], Some("[::1]:5000")), Said::Cell(1));
        assert_eq!(
            says("family + remote_port + remote_ip[0]", b"", None),
            Said::Cell(0)
        );
    }

    #[test]
    fn variables_stay_from_datagram_to_datagram() {
        let mut text = AnswerText::new("static u32 n; n++; return n;").expect("a text");
        assert_eq!(
            [text.says(b"", None), text.says(b"", None)],
            [Said::Cell(1), Said::Cell(2)]
        );
    }
}
