//! The relay's part in the network of relays: one Zenoh session, whose answers and messages become
//! [`Happening`]s for the main loop.
//!
//! Zenoh calls back from threads of its own. What it says is put into a queue that has a limit, so
//! that no host can fill this host's memory; what found no place is made good by the next review
//! ([`Network::review`]), which asks for all hosts again. Frames have queues of their own.
//! If that of arrived ones is full, Zenoh's thread waits, and with it the host that sends; if that
//! of those to be sent is, programs wait.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::Wire;
use ecalls_abi::zerocopy::FromBytes;
use rustix::event::{EventfdFlags, eventfd};
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, QueryTarget, Queryable};
use zenoh::sample::SampleKind;
use zenoh::{Config, Session, Wait};

use crate::access::Access;
use crate::config;
use crate::error::{Error, Result};
use crate::info::{Info, Policy, TEXT_MAX};
use crate::key::{Host, Name};
use crate::refusal::{self, Refusals};

/// What waits for the main loop.
const QUEUE_MAX: usize = 16_384;

/// Frames that have arrived and wait for the main loop; and those that wait to be sent.
const FRAMES_MAX: usize = 1024;

/// How long an arrived frame waits for a place there: then it is dropped, and missing.
const FRAME_TIME: Duration = Duration::from_secs(3);

/// How long an answer of another host may take.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Bytes of the longest frame.
const FRAME_BYTES_MAX: usize = size_of::<Wire>() + DATA_MAX;

/// Relays that can be connected to this one.
const SESSIONS_MAX: u32 = 4096;

/// Bytes of a message that a host may send us.
const MESSAGE_MAX: usize = 65_536;

/// What other hosts have said.
#[derive(Debug)]
pub enum Happening {
    /// A host has the channel open, or has no more.
    Host(Name, Host, bool),
    /// An answer to a question, and its key.
    Answer(u64, String, Vec<u8>),
    /// There are no further ones.
    Answered(u64),
    /// A host that the review has found.
    Seen(u64, Host),
    /// There are hosts that it has not found: the time for it has passed.
    Unseen(u64),
    /// It has ended.
    Reviewed(u64),
    /// What [`crate::access`] has refused.
    Refused(u64, Refusals),
    /// There is no more to say of it.
    Counted(u64),
}

impl Happening {
    /// Those that someone waits for: there is one for each request of the main loop.
    fn ends(&self) -> bool {
        matches!(
            self,
            Happening::Answered(_)
                | Happening::Unseen(_)
                | Happening::Reviewed(_)
                | Happening::Refused(..)
                | Happening::Counted(_)
        )
    }
}

/// The queue between Zenoh's threads and the main loop.
#[derive(Debug)]
struct Queue {
    waiting: Mutex<(VecDeque<Happening>, u64)>,
    frames: Mutex<VecDeque<(Name, Vec<u8>)>>,
    room: Condvar,
    /// Frames that wait to be sent.
    outgoing: AtomicUsize,
    /// What could not be.
    impossible: AtomicU64,
    wake: OwnedFd,
}

impl Queue {
    fn count_impossible(&self) {
        self.impossible.fetch_add(1, Ordering::Relaxed);
    }

    fn put(&self, happening: Happening) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.0.len() >= QUEUE_MAX && !happening.ends() {
            waiting.1 += 1;
            return;
        }
        waiting.0.push_back(happening);
        drop(waiting);
        self.rouse();
    }

    fn rouse(&self) {
        // It is not full: the main loop sets it to 0.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn frames(&self) -> MutexGuard<'_, VecDeque<(Name, Vec<u8>)>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame has arrived: waits for a place.
    fn put_frame(&self, name: Name, frame: Vec<u8>) {
        let full = |frames: &mut VecDeque<_>| frames.len() >= FRAMES_MAX;
        let waited = self
            .room
            .wait_timeout_while(self.frames(), FRAME_TIME, full);
        let (mut frames, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            drop(frames);
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.1 += 1;
            return;
        }
        frames.push_back((name, frame));
        drop(frames);
        self.rouse();
    }
}

/// Says that a request has ended when Zenoh drops what it calls back for it.
#[derive(Debug)]
struct End(Arc<Queue>, Option<Happening>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(happening) = self.1.take() {
            self.0.put(happening);
        }
    }
}

/// What other hosts see of a channel that this one has open, until it is dropped. The token is the
/// first field: hosts that look at the channel then do not find it, but no answer.
#[derive(Debug)]
pub struct Presence {
    _token: LivelinessToken,
    _hosts: Subscriber<()>,
    _frames: Option<Subscriber<()>>,
    _info: Queryable<()>,
}

/// The session.
#[derive(Debug)]
pub struct Network {
    session: Session,
    queue: Arc<Queue>,
    sender: SyncSender<(String, Vec<u8>)>,
    has_access: bool,
}

impl Network {
    /// Listens, connects, and looks for others.
    ///
    /// # Errors
    /// [`Error::Network`] for addresses that cannot be used.
    pub fn open(config: &config::Config) -> Result<Network> {
        let action = "making the queue of messages";
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let queue = Queue {
            waiting: Mutex::default(),
            frames: Mutex::default(),
            room: Condvar::new(),
            outgoing: AtomicUsize::new(0),
            impossible: AtomicU64::new(0),
            wake: wake.map_err(Error::errno(action))?,
        };
        let opened = zenoh::open(settings(config)?).wait();
        let session = opened.map_err(Error::network("opening the network"))?;
        let queue = Arc::new(queue);
        Ok(Network {
            sender: start_sender(session.clone(), Arc::clone(&queue))?,
            session,
            queue,
            has_access: !config.access.is_empty(),
        })
    }

    /// Readable when something has happened.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.queue.wake.as_fd()
    }

    /// What has happened since, and how much was lost because it was too much.
    pub fn take(&self) -> (VecDeque<Happening>, u64) {
        let _ = rustix::io::read(&self.queue.wake, &mut [0u8; 8]);
        let mut waiting = self
            .queue
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting)
    }

    /// How much of what hosts have said could not be.
    pub fn impossible(&self) -> u64 {
        self.queue.impossible.load(Ordering::Relaxed)
    }

    /// The next frame that has arrived.
    pub fn next_frame(&self) -> Option<(Name, Vec<u8>)> {
        let frame = self.queue.frames().pop_front();
        self.queue.room.notify_one();
        frame
    }

    /// The main loop has not taken all.
    pub fn rouse(&self) {
        self.queue.rouse();
    }

    /// Whether a frame can be sent without waiting.
    pub fn has_room(&self) -> bool {
        self.queue.outgoing.load(Ordering::Relaxed) < FRAMES_MAX
    }

    /// Sends a frame of the host `own` to another one: [`Network::has_room`] has said that it can.
    /// Whether it will be.
    pub fn send(&self, name: &Name, host: u64, own: u64, frame: Vec<u8>) -> bool {
        self.queue.outgoing.fetch_add(1, Ordering::Relaxed);
        self.sender.try_send((name.to(host, own), frame)).is_ok()
    }

    /// The identity of the session.
    pub fn id(&self) -> String {
        self.session.zid().to_string()
    }

    /// Other relays with which this one has a connection.
    pub fn peers(&self) -> usize {
        self.session.info().peers_zid().wait().count()
    }

    /// Asks all hosts what the channels with this key of answers are: the answers are
    /// [`Happening::Answer`]s with this number, the last is [`Happening::Answered`].
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn ask(&self, key: String, number: u64) -> Result<()> {
        let end = self.end(Happening::Answered(number));
        self.session
            .get(key)
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .timeout(ANSWER_TIME)
            .callback(move |reply| {
                let Ok(sample) = reply.result() else { return };
                let payload = sample.payload();
                // A longer one is none, and is not copied.
                if payload.len() <= TEXT_MAX {
                    let bytes = payload.to_bytes().into_owned();
                    let key = sample.key_expr().to_string();
                    end.0.put(Happening::Answer(number, key, bytes));
                } else {
                    end.0.count_impossible();
                }
            })
            .wait()
            .map_err(Error::network("asking for a channel"))
    }

    /// Asks for all hosts that have the channel open: [`Happening::Seen`], [`Happening::Unseen`]
    /// if not all could be found in time, at the end [`Happening::Reviewed`].
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn review(&self, name: &Name, number: u64) -> Result<()> {
        let end = self.end(Happening::Reviewed(number));
        let of = name.clone();
        self.session
            .liveliness()
            .get(name.tokens())
            .timeout(ANSWER_TIME)
            .callback(move |reply| {
                let Ok(sample) = reply.result() else {
                    end.0.put(Happening::Unseen(number));
                    return;
                };
                match of.host(sample.key_expr()) {
                    Some(host) => end.0.put(Happening::Seen(number, host)),
                    None => end.0.count_impossible(),
                }
            })
            .wait()
            .map_err(Error::network("asking for the hosts of a channel"))
    }

    /// Asks what has been refused by [`crate::access`]: [`Happening::Refused`], unless there are no
    /// entries or the network does not say, and at the end [`Happening::Counted`].
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn count(&self, number: u64) -> Result<()> {
        let end = self.end(Happening::Counted(number));
        if !self.has_access {
            return Ok(());
        }
        self.session
            .get(refusal::key(&self.id()))
            .timeout(ANSWER_TIME)
            .callback(move |reply| {
                let Ok(sample) = reply.result() else { return };
                let bytes = sample.payload().to_bytes();
                let refused = refusal::read(&String::from_utf8_lossy(&bytes));
                end.0.put(Happening::Refused(number, refused));
            })
            .wait()
            .map_err(Error::network("asking what was refused"))
    }

    /// Tells the others that this host has the channel open. The token is the last: who sees it
    /// finds the answer, too.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn enter(&self, name: &Name, own: &Host, info: &Info) -> Result<Presence> {
        let failed = Error::network("telling other hosts of a channel");
        let reliable = info.policy == Policy::Reliable;
        let frames = reliable.then(|| self.frames(name, own.id)).transpose()?;
        let (key, text) = (name.info(), info.to_text());
        let info = self
            .session
            .declare_queryable(name.info())
            .complete(true)
            .callback(move |query| {
                // Who asked may be gone.
                let _ = query.reply(key.as_str(), text.as_str()).wait();
            })
            .wait()
            .map_err(&failed)?;
        let (queue, of) = (Arc::clone(&self.queue), name.clone());
        let hosts = self
            .session
            .liveliness()
            .declare_subscriber(name.tokens())
            .history(true)
            .callback(move |sample| {
                let present = sample.kind() == SampleKind::Put;
                match of.host(sample.key_expr()) {
                    Some(host) => queue.put(Happening::Host(of.clone(), host, present)),
                    None => queue.count_impossible(),
                }
            })
            .wait()
            .map_err(&failed)?;
        let token = self.session.liveliness().declare_token(name.token(own));
        Ok(Presence {
            _token: token.wait().map_err(&failed)?,
            _hosts: hosts,
            _frames: frames,
            _info: info,
        })
    }

    /// Takes frames for this host that are of the host which their key names.
    fn frames(&self, name: &Name, own: u64) -> Result<Subscriber<()>> {
        let (queue, of) = (Arc::clone(&self.queue), name.clone());
        self.session
            .declare_subscriber(name.frames(own))
            .callback(move |sample| {
                let payload = sample.payload();
                let source = of.source(own, sample.key_expr());
                // A longer one is none, and is not copied.
                let frame = (payload.len() <= FRAME_BYTES_MAX).then(|| payload.to_bytes());
                let is_of = |frame: &&[u8]| {
                    let wire = Wire::read_from_prefix(frame);
                    wire.is_ok_and(|(wire, _)| Some(wire.host) == source)
                };
                match frame.as_deref().filter(is_of) {
                    Some(frame) => queue.put_frame(of.clone(), frame.to_vec()),
                    None => queue.count_impossible(),
                }
            })
            .wait()
            .map_err(Error::network("listening for frames"))
    }

    /// Leaves: the others see at once that this host has left.
    pub fn close(&self) {
        let _ = self.session.close().wait();
    }

    fn end(&self, happening: Happening) -> End {
        End(Arc::clone(&self.queue), Some(happening))
    }
}

/// Starts the thread that sends frames, in order: it may have to wait for a slow host.
fn start_sender(session: Session, queue: Arc<Queue>) -> Result<SyncSender<(String, Vec<u8>)>> {
    let (sender, frames) = sync_channel::<(String, Vec<u8>)>(FRAMES_MAX);
    let send = move || {
        for (key, frame) in frames {
            let put = session.put(key, frame);
            let put = put
                .congestion_control(CongestionControl::Block)
                .express(true);
            // The session has been closed; the relay ends.
            let _ = put.wait();
            if queue.outgoing.fetch_sub(1, Ordering::Relaxed) == FRAMES_MAX {
                queue.rouse();
            }
        }
    };
    let started = std::thread::Builder::new()
        .name("frames".to_owned())
        .spawn(send);
    started.map_err(Error::os("starting to send frames"))?;
    Ok(sender)
}

/// Our configuration as Zenoh's.
fn settings(config: &config::Config) -> Result<Config> {
    let network = &config.network;
    let protocol = if config.tls.is_some() { "tls" } else { "tcp" };
    let endpoints = |all: &[String]| {
        let all = all.iter().map(|one| format!("{protocol}/{one}"));
        serde_json::json!(all.collect::<Vec<_>>())
    };
    let mut settings = Config::default();
    let mut set = |key: &str, value: serde_json::Value| {
        let set = settings.insert_json5(key, &value.to_string());
        set.map_err(Error::network("configuring the network"))
    };
    // One that nobody can connect to does not connect to all others either: it is a client of
    // those that are named.
    let is_client = network.listen.is_empty() && !network.connect.is_empty();
    set("mode", if is_client { "client" } else { "peer" }.into())?;
    set("transport/unicast/max_sessions", SESSIONS_MAX.into())?;
    set("listen/endpoints", endpoints(&network.listen))?;
    set("connect/endpoints", endpoints(&network.connect))?;
    set("scouting/multicast/enabled", network.scouting.into())?;
    // Our own group: other programs with Zenoh in this network are not of our concern.
    set("scouting/multicast/address", network.group.as_str().into())?;
    set("transport/link/tx/lease", network.lease_ms.into())?;
    set("transport/link/rx/max_message_size", MESSAGE_MAX.into())?;
    set("transport/shared_memory/enabled", false.into())?;
    if let Some(tls) = &config.tls {
        let pem = serde_json::json!({
            "root_ca_certificate": tls.authority,
            "listen_certificate": tls.certificate,
            "listen_private_key": tls.key,
            "connect_certificate": tls.certificate,
            "connect_private_key": tls.key,
            "enable_mtls": true,
            // Hosts find each other by addresses. What counts is the authority.
            "verify_name_on_connect": false,
        });
        set("transport/link/tls", pem)?;
    }
    if let Some(access) = Access::settings(&config.access) {
        set("access_control", access)?;
        // There it says what it has refused. Other hosts may not ask: no entry allows it.
        set("adminspace/enabled", true.into())?;
    }
    Ok(settings)
}
