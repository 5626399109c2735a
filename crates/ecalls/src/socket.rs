//! The socket service (ECalls-05 §5.2): events when data arrives at a registered socket or a
//! connection becomes ready at a registered listener. Registering costs one system call; a
//! listener's registration is inherited by the connections it accepts.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use ecalls_abi::service::{SOCKET_CONNECTION, SOCKET_DATA, SocketInterest};

use crate::host::Ecalls;
use crate::{Error, Result};

/// The registration of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Interest {
    /// None: this process.
    target: Option<i32>,
    slot_type: Option<u32>,
    kinds: u32,
    inherit: bool,
    deadline: Option<Duration>,
}

impl Default for Interest {
    /// Events of data and connections for this process, inherited by accepted connections.
    fn default() -> Interest {
        Interest {
            target: None,
            slot_type: None,
            kinds: 1 << SOCKET_DATA | 1 << SOCKET_CONNECTION,
            inherit: true,
            deadline: None,
        }
    }
}

impl Interest {
    /// Events for every subscription instead of this process only.
    #[must_use]
    pub fn everyone(mut self) -> Interest {
        self.target = Some(ecalls_abi::event::TARGET_ALL);
        self
    }

    /// Events for one of the subscriptions, in turn.
    #[must_use]
    pub fn wake_one(mut self) -> Interest {
        self.target = Some(ecalls_abi::event::TARGET_WAKE_ONE);
        self
    }

    /// Sets `type` of its events, which selects the slot by type. The default is the descriptor's
    /// number.
    #[must_use]
    pub fn slot_type(mut self, slot_type: u32) -> Interest {
        self.slot_type = Some(slot_type);
        self
    }

    /// Only events of arriving data.
    #[must_use]
    pub fn data_only(mut self) -> Interest {
        self.kinds = 1 << SOCKET_DATA;
        self
    }

    /// Accepted connections are not registered.
    #[must_use]
    pub fn not_inherited(mut self) -> Interest {
        self.inherit = false;
        self
    }

    /// Deadline of its events, relative.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Interest {
        self.deadline = Some(deadline);
        self
    }

    fn row(&self, pid: u32, number: u32) -> SocketInterest {
        SocketInterest {
            target: self.target.unwrap_or(pid.cast_signed()),
            r#type: self.slot_type.unwrap_or(number),
            kinds: self.kinds,
            inherit: u32::from(self.inherit),
            deadline_ns: self
                .deadline
                .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            ..SocketInterest::default()
        }
    }
}

impl Ecalls {
    /// Registers a socket of this process with the socket service. The registration lasts as long
    /// as the socket, or until [`Ecalls::forget_socket`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the descriptor is not a socket.
    pub fn watch_socket(&self, socket: impl AsFd, interest: &Interest) -> Result<()> {
        let fd = socket.as_fd();
        let number = u32::try_from(fd.as_raw_fd()).unwrap_or(0);
        self.access()
            .watch_socket(fd, &interest.row(self.pid(), number), false)
    }

    /// Ends a registration.
    pub fn forget_socket(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.access().forget_socket(socket)
    }

    /// Registers all sockets that another process has open now; existing registrations are not
    /// changed. Returns the number of sockets.
    ///
    /// # Errors
    /// [`Error::Os`] if there is no such process, or the caller may not inspect it.
    pub fn watch_sockets_of(&self, pid: u32, interest: &Interest) -> Result<usize> {
        let sockets = ecalls_kernel::socket::sockets_of(pid)?;
        let mut registered = 0;
        for (number, socket) in &sockets {
            match self.access().watch_socket(
                socket.as_fd(),
                &interest.row(self.pid(), *number),
                true,
            ) {
                Ok(()) => registered += 1,
                Err(Error::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(registered)
    }
}
