//! Opens the interface of the core: only here it is determined whether a daemon runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::access::Access;
use crate::access::client::Client;
use crate::access::connection::socket_path;
use crate::access::host::Host;
use crate::core::Core;
use crate::error::{Error, Result};

/// The interval at which [`open_within`] tries again.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Connects to the daemon; without one it joins the machine's core, or loads one.
///
/// # Errors
/// [`Error::Denied`] when there is no daemon and the program may not host the core itself,
/// [`Error::Unsupported`] on a kernel without a needed feature.
pub fn open() -> Result<Arc<dyn Access>> {
    match Client::connect(&socket_path()?)? {
        Some(client) => Ok(Arc::new(client)),
        None => host(),
    }
}

/// The same, but waits for the daemon for at most `time`: for clients of a daemon that restarts.
///
/// # Errors
/// [`Error::DaemonGone`] if the time is over.
pub fn open_within(time: Duration) -> Result<Arc<dyn Access>> {
    let until = Instant::now() + time;
    loop {
        match Client::connect(&socket_path()?) {
            Ok(Some(client)) => return Ok(Arc::new(client)),
            Ok(None) | Err(Error::DaemonGone) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= until {
            return Err(Error::DaemonGone);
        }
        std::thread::sleep(TRY_AGAIN);
    }
}

/// Reaches the running core, if there is one, and never loads a core.
pub fn join() -> Result<Option<Arc<dyn Access>>> {
    if let Some(client) = Client::connect(&socket_path()?)? {
        return Ok(Some(Arc::new(client)));
    }
    Ok(Core::join_running()?.map(|core| of_core(Arc::new(core))))
}

/// Hosts the core in this program even if a daemon runs.
///
/// # Errors
/// Those of [`Core::open`].
pub fn host() -> Result<Arc<dyn Access>> {
    Ok(of_core(Arc::new(Core::open()?)))
}

/// The interface of a core that this program hosts already.
pub fn of_core(core: Arc<Core>) -> Arc<dyn Access> {
    Arc::new(Host(core))
}
