//! The broker: decides on clients' requests, carries them out in the kernel, and revokes the
//! results.
//!
//! It is one thread with one loop. The door tells it about clients ([`crate::relay`]), but it
//! trusts the door only where the kernel gives no answer itself: it takes the identity of a client
//! from its own copy of the client's connection, and its end from that connection and from the
//! process. Requests wait per user ([`crate::turn`]); each is answered on the client's own
//! connection.
//!
//! A client ends when its process ends, when its connection is closed, or when it does not read its
//! answers. Then everything that it holds is first revoked in the kernel, and afterwards freed.

mod admit;
mod upload;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls_abi::message::{MESSAGE_MAX, REFUSED_LIMIT, Refused, Request};
use ecalls_kernel::core::Core;
use ecalls_kernel::now_ns;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::Timespec;
use tracing::{debug, info, trace, warn};
use zerocopy::IntoBytes;

use self::upload::Uploads;
use crate::client::{ANSWER_NS_MAX, Client, Closing, Reply, Sent, Unread, refusal};
use crate::compiler::Compiler;
use crate::config::{Config, Limits, Names};
use crate::log::{Handle, Limiter};
use crate::metrics::figures::{DaemonFigures, Figures, ServiceFigures, ThreadFigures};
use crate::notify::Notify;
use crate::policy::{self, Policy};
use crate::quota::Ledger;
use crate::relay::{DEALT_WITH, Kind, Packet, Relay, UserRate, Why};
use crate::request::activations::Blocking;
use crate::request::{self, Context};
use crate::retired::Retired;
use crate::subordinate::{IdRange, Subordinates};
use crate::turn::Turns;
use crate::users::Users;

/// Packets that are taken from the door in one round of the loop.
const AT_ONCE: usize = 64;

/// Time for answering requests in one round.
const SLICE_NS: u64 = 1_000_000;

/// The longest the loop waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// In one of this number of rounds, a channel is freed although requests are waiting.
const CLOSE_ROUNDS: u32 = 4;

/// The interval of the checks that no descriptor triggers.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_NS: u64 = 50_000_000;

/// Lines in the log that one user can cause per [`LINES_PERIOD_NS`].
const LINES: u32 = 5;
const LINES_PERIOD_NS: u64 = 10_000_000_000;

/// Tokens of the descriptors that the loop waits for; clients have two each, from 2 on.
const RELAY: u64 = 0;
const WAKE: u64 = 1;
const COMPILER: u64 = u64::MAX;

/// The requests of signals.
#[derive(Debug, Default)]
pub struct Asked {
    pub stop: Arc<AtomicBool>,
    /// The configuration must be read again.
    pub reload: Arc<AtomicBool>,
}

/// State that other threads read.
#[derive(Debug)]
pub struct Shared {
    core: Arc<Core>,
    blocking: Blocking,
    ledger: Ledger,
    users: Mutex<Users>,
    figures: Mutex<DaemonFigures>,
}

#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    relay: Relay,
    epoll: OwnedFd,
    wake: OwnedFd,
    asked: Asked,
    clients: HashMap<u64, Client>,
    turns: Turns<Packet>,
    uploads: Uploads,
    retired: Retired,
    unread: Vec<Unread>,
    /// What clients had that have ended. Other requests are answered in between.
    closing: VecDeque<Closing>,
    /// Whether an answer waits for which no event will tell when it can be sent.
    crowded: bool,
    looked_ns: u64,
    policy: Policy,
    subordinates: Subordinates,
    config_path: PathBuf,
    notify: Notify,
    log: Handle,
    lines: Limiter<(u32, &'static str)>,
    /// Parts of the core that the kernel's verifier refused, as far as the log says so.
    refused_parts: HashSet<&'static str>,
}

/// The parts of a broker.
#[derive(Debug)]
pub struct Parts {
    pub core: Arc<Core>,
    /// The broker's end of the connection to the door.
    pub relay: Relay,
    pub compiler: Compiler,
    /// Becomes readable at a signal.
    pub wake: OwnedFd,
    pub asked: Asked,
    pub config: Config,
    /// The file of the configuration.
    pub config_path: PathBuf,
    pub log: Handle,
}

impl Shared {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut DaemonFigures)) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut figures);
    }

    /// The figures for Prometheus.
    pub fn figures(&self) -> Figures {
        let services = self.core.services().unwrap_or_default();
        let services = services.into_iter().map(|stat| ServiceFigures {
            name: stat.info.name().to_owned(),
            latency: self.core.service_latency(stat.index).unwrap_or_default(),
            count: stat.count,
            subscriptions: stat.subscriptions,
        });
        let mut users = self.users();
        users.settle();
        let views = users
            .all()
            .filter_map(|(uid, user)| users.view(uid, user, &self.ledger).ok());
        let mut views: Vec<_> = views.collect();
        drop(users);
        for stat in self.core.subscriptions().unwrap_or_default() {
            // The next row is the one after the user's.
            let owner = |view: &&mut ecalls_abi::message::UserView| view.next == stat.row.user + 1;
            if let Some(view) = views.iter_mut().find(owner) {
                view.count.add(&stat.count);
            }
        }
        let threads = self.blocking.loaded();
        let threads = threads.map(|host| ThreadFigures {
            runtimes: host.runtimes(),
            blocks: host.blocks().unwrap_or_default(),
        });
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        Figures {
            services: services.collect(),
            users: views,
            threads: threads.unwrap_or_default(),
            daemon: *figures,
        }
    }
}

impl Broker {
    pub fn new(parts: Parts) -> io::Result<Broker> {
        let names = Names::of_system();
        let shared = Arc::new(Shared {
            ledger: Ledger::new(&parts.config.machine),
            users: Mutex::new(Users::new(Arc::clone(&parts.core))),
            figures: Mutex::default(),
            core: parts.core,
            blocking: Blocking::default(),
        });
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let readable = EventFlags::IN;
        epoll::add(&epoll, &parts.relay, EventData::new_u64(RELAY), readable)?;
        epoll::add(&epoll, &parts.wake, EventData::new_u64(WAKE), readable)?;
        let compiler = EventData::new_u64(COMPILER);
        epoll::add(&epoll, &parts.compiler, compiler, readable)?;
        let broker = Broker {
            shared,
            relay: parts.relay,
            epoll,
            wake: parts.wake,
            asked: parts.asked,
            clients: HashMap::new(),
            turns: Turns::default(),
            uploads: Uploads::new(parts.compiler),
            retired: Retired::default(),
            unread: Vec::new(),
            closing: VecDeque::new(),
            crowded: false,
            looked_ns: 0,
            policy: Policy::new(&parts.config, &names),
            subordinates: Subordinates::of_system(&names).unwrap_or_default(),
            config_path: parts.config_path,
            notify: Notify::of_environment(),
            log: parts.log,
            lines: Limiter::new(LINES, LINES_PERIOD_NS),
            refused_parts: HashSet::new(),
        };
        broker.tell_rates(&parts.config)?;
        broker.tell_subordinates()?;
        Ok(broker)
    }

    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Serves until a signal requests the end.
    ///
    /// # Errors
    /// The door is gone, or waiting fails.
    pub fn serve(&mut self) -> io::Result<()> {
        self.notify.ready();
        info!("ready");
        let mut rounds: u32 = 0;
        loop {
            rounds = rounds.wrapping_add(1);
            self.wait()?;
            // Some requests wait for the kernel; requests that arrived meanwhile must be queued,
            // too.
            let start = now_ns();
            while now_ns().saturating_sub(start) < SLICE_NS {
                let Some(packet) = self.turns.pop() else {
                    break;
                };
                self.deal_with(packet)?;
            }
            if (self.turns.is_empty() || rounds.is_multiple_of(CLOSE_ROUNDS))
                && let Some(closing) = self.closing.pop_front()
            {
                closing.close(&mut self.retired);
            }
            if self.asked.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.asked.reload.swap(false, Ordering::Relaxed) {
                self.reload()?;
            }
            self.look_around()?;
        }
        self.notify.stopping();
        info!("ending: {} clients", self.clients.len());
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        for number in numbers {
            self.end(number, "the daemon ends")?;
        }
        // All are revoked, and freed with the core when this process ends.
        self.closing.drain(..).for_each(std::mem::forget);
        Ok(())
    }

    /// Waits for events, and handles them.
    fn wait(&mut self) -> io::Result<()> {
        let patience = self.notify.patience().unwrap_or(PATIENCE).min(PATIENCE);
        let is_idle = self.turns.is_empty() && self.closing.is_empty();
        let patience = match (is_idle, self.crowded) {
            (true, false) => patience,
            (true, true) => patience.min(LOOK),
            (false, _) => Duration::ZERO,
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let mut events = Vec::with_capacity(AT_ONCE);
        let space = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, space, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            match event.data.u64() {
                RELAY => self.take_packets()?,
                WAKE => drain(&self.wake),
                COMPILER => self.hear_compiler()?,
                token => self.notice(token, event.flags)?,
            }
        }
        Ok(())
    }

    /// Receives the door's packets; requests are queued.
    fn take_packets(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let Some(packet) = self.relay.receive(false)? else {
                break;
            };
            let uid = match packet.kind {
                Kind::Open => self.subordinates.account(admit::uid_of(&packet)),
                Kind::Request | Kind::Gone => self.uid_of(packet.connection),
                Kind::Slow => {
                    self.note_slow(&packet);
                    continue;
                }
                // The door does not send these.
                Kind::Done | Kind::Rate | Kind::Subordinates => continue,
            };
            self.turns.push(uid, packet);
        }
        Ok(())
    }

    fn uid_of(&self, number: u64) -> u32 {
        self.clients
            .get(&number)
            .map_or(0, |client| client.who.account)
    }

    /// Handles an event of a client's connection or process.
    fn notice(&mut self, token: u64, flags: EventFlags) -> io::Result<()> {
        let (number, is_process) = (token / 2, token % 2 == 1);
        let gone = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
        if is_process {
            return self.end(number, "its process has ended");
        }
        if flags.intersects(gone) {
            return self.end(number, "it closed its connection");
        }
        self.answer_more(number)
    }

    /// Tries to send the waiting answer of a client.
    fn answer_more(&mut self, number: u64) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(());
        };
        if client.waiting_since_ns().is_none() {
            return Ok(());
        }
        match client.answer_more(now_ns()) {
            Ok(Sent::Waits) => Ok(()),
            Ok(Sent::Crowded) => {
                self.crowded = true;
                Ok(())
            }
            Ok(Sent::Yes) => {
                let data = EventData::new_u64(number * 2);
                match epoll::modify(&self.epoll, &client.socket, data, EventFlags::RDHUP) {
                    Ok(()) => self.done(number),
                    Err(_) => self.end(number, "the kernel has no memory to hear of it"),
                }
            }
            Err(_) => self.end(number, "it closed its connection"),
        }
    }

    /// Handles a packet whose turn it is. When its descriptors are closed, the door continues.
    fn deal_with(&mut self, packet: Packet) -> io::Result<()> {
        let number = packet.connection;
        let answered = match packet.kind {
            Kind::Open => self.admit(packet)?,
            Kind::Request => self.answer(packet)?,
            _ => {
                let why = Why::from_number(packet.detail);
                if why != Why::Closed {
                    self.tell_expelled(number, why.text());
                }
                self.end(number, why.text())?;
                true
            }
        };
        match answered {
            true => self.done(number),
            false => Ok(()),
        }
    }

    fn done(&self, number: u64) -> io::Result<()> {
        self.relay.send(Kind::Done, number, DEALT_WITH, &[], &[])
    }

    /// Answers a request. Returns false if its client has to read first.
    fn answer(&mut self, packet: Packet) -> io::Result<bool> {
        let number = packet.connection;
        // The door has checked the message, so parsing it is sufficient here.
        let Ok((serial, asked)) = Request::parse(&packet.body) else {
            self.end(number, "it sent something that is no message")?;
            return Ok(true);
        };
        if packet.fds.len() < asked.descriptors() {
            self.tell_full();
            let (most, which) = (admit::descriptors_max(), "descriptors of the daemon");
            let refused = Refused::new(REFUSED_LIMIT, most, which, "", "");
            return self.reply(number, serial, refusal(refused));
        }
        // A request is not carried out if the process has executed another program since. The
        // second check covers objects that are made during the execve(2); the kernel side ends
        // earlier ones.
        if self.has_another_program(number) {
            self.end(number, "its process runs another program now")?;
            return Ok(true);
        }
        trace!("{} of client {number}", asked.name());
        if request::upload::is_upload(&asked) {
            return self.take_upload(serial, &asked, packet);
        }
        let Some(result) = self.with(number, |context| {
            request::answer(context, &asked, &packet.fds)
        }) else {
            return Ok(true); // the client has ended
        };
        drop(packet.fds);
        self.conclude(number, serial, result)
    }

    /// Whether a client's process has executed another program since it connected.
    fn has_another_program(&self, number: u64) -> bool {
        self.clients.get(&number).is_some_and(|client| {
            let now = self.shared.core.identify(client.owner.pid);
            now.is_ok_and(|now| now.program != client.program)
        })
    }

    /// Calls `act` with a client and the broker's parts. `None`: there is no such client.
    fn with<T>(&mut self, number: u64, act: impl FnOnce(&mut Context<'_>) -> T) -> Option<T> {
        let client = self.clients.get_mut(&number)?;
        let mut users = self.shared.users();
        let mut context = Context {
            core: &self.shared.core,
            policy: &self.policy,
            ledger: &self.shared.ledger,
            users: &mut users,
            blocking: &self.shared.blocking,
            retired: &mut self.retired,
            client,
        };
        Some(act(&mut context))
    }

    /// Sends a reply. Returns false if its client has to read first.
    fn reply(&mut self, number: u64, serial: u32, reply: Reply) -> io::Result<bool> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(true);
        };
        match client.answer(serial, reply, now_ns()) {
            Ok(Sent::Yes) => Ok(true),
            Ok(Sent::Crowded) => {
                self.crowded = true;
                Ok(false)
            }
            Ok(Sent::Waits) => {
                let data = EventData::new_u64(number * 2);
                // Edge-triggered, because there can be room to write while there is data to read.
                let wanted = EventFlags::RDHUP | EventFlags::OUT | EventFlags::ET;
                match epoll::modify(&self.epoll, &client.socket, data, wanted) {
                    Ok(()) => Ok(false),
                    Err(_) => {
                        self.end(number, "the kernel has no memory to hear of it")?;
                        // The end has released the door's waiting packet.
                        Ok(false)
                    }
                }
            }
            Err(_) => {
                self.end(number, "it closed its connection")?;
                Ok(true)
            }
        }
    }

    /// Writes to the log which parts of the core the kernel's verifier has refused meanwhile.
    fn tell_refused_parts(&mut self) {
        for (part, why) in self.shared.core.refused() {
            if self.refused_parts.insert(part) {
                warn!("the kernel refused {part}: {why}");
            }
        }
    }

    /// Ends a client: revokes everything that it holds, and releases the door's waiting packet.
    fn end(&mut self, number: u64, why: &str) -> io::Result<()> {
        let mut closing = Vec::new();
        self.with(number, |context| {
            for (_, held) in std::mem::take(&mut context.client.subscriptions) {
                request::subscription::finish(context, held);
            }
            context.client.services.clear();
            for (_, held) in std::mem::take(&mut context.client.channels) {
                held.thing.revoke();
                closing.push(Closing::Channel(held));
            }
            for held in std::mem::take(&mut context.client.activations) {
                held.thing.revoke();
                closing.push(Closing::Activations(held));
            }
        });
        self.closing.extend(closing);
        let Some(client) = self.clients.remove(&number) else {
            return Ok(());
        };
        debug!("{client} has gone: {why}");
        self.shared.users().leave(client.who.account);
        // The door has a copy of the connection, so closing ours does not remove it from the epoll
        // set. A missing entry is impossible, and would be harmless.
        let _ = epoll::delete(&self.epoll, &client.socket);
        let _ = epoll::delete(&self.epoll, &client.process);
        let waits = client.waiting_since_ns().is_some() || self.uploads.forget(number);
        self.unread.extend(client.hang_up());
        match waits {
            true => self.done(number),
            false => Ok(()),
        }
    }

    /// Periodic work.
    fn look_around(&mut self) -> io::Result<()> {
        let now = now_ns();
        if now.saturating_sub(self.looked_ns) < LOOK_NS {
            return Ok(());
        }
        self.looked_ns = now;
        self.notify.alive();
        let users: HashSet<u32> = self.clients.values().map(|one| one.who.uid).collect();
        let (clients, users) = (self.clients.len(), users.len());
        self.notify
            .status(format!("{clients} clients of {users} users"));
        let silent = |client: &Client| {
            let since = client.waiting_since_ns();
            since.is_some_and(|since| now.saturating_sub(since) > ANSWER_NS_MAX)
        };
        let silent = self.clients.iter().filter(|(_, client)| silent(client));
        let silent: Vec<u64> = silent.map(|(number, _)| *number).collect();
        for number in silent {
            self.tell_expelled(number, "does not read its answers");
            self.end(number, "it does not read its answers")?;
        }
        self.look_after_compiler(now);
        self.crowded = false;
        let waiting = |client: &Client| client.waiting_since_ns().is_some();
        let waiting = self.clients.iter().filter(|(_, client)| waiting(client));
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            self.answer_more(number)?;
        }
        self.unread.retain(|unread| !unread.is_over());
        if self.retired.is_due(now) {
            self.release_retired(now);
        }
        Ok(())
    }

    fn release_retired(&mut self, now_ns: u64) {
        match self.shared.core.living_maps() {
            Ok(living) => self.retired.release(&living, now_ns),
            Err(error) => {
                if self.lines.admit((0, "retired"), now_ns).is_some() {
                    warn!("looking for memory that is still in use: {error}");
                }
            }
        }
    }

    /// Reads the configuration again. If it has an error, the former one remains in force.
    fn reload(&mut self) -> io::Result<()> {
        let config = match Config::load(&self.config_path, false) {
            Ok(config) => config,
            Err(error) => {
                for line in error.to_string().lines() {
                    warn!("not reloaded: {line}");
                }
                return Ok(());
            }
        };
        self.log.set_level(config.log.level);
        let names = Names::of_system();
        self.policy = Policy::new(&config, &names);
        if let Some(subordinates) = Subordinates::of_system(&names) {
            // Existing clients keep their accounts.
            self.subordinates = subordinates;
            self.tell_subordinates()?;
        }
        self.shared.ledger.set_machine(&config.machine);
        let mut users = self.shared.users();
        let uids: Vec<u32> = users.all().map(|(uid, _)| uid).collect();
        let mut limits = Vec::new();
        for uid in uids {
            let of_uid = |client: &&Client| client.who.account == uid;
            let known = self.clients.values().find(of_uid).map(|client| client.who);
            let who = known.unwrap_or(policy::Client {
                pid: 0,
                uid,
                account: uid,
                gid: u32::MAX,
            });
            let new = self.policy.limits(&who);
            if let Err(error) = users.set_limits(uid, &new) {
                warn!("limits of user {uid}: {error}");
            }
            limits.push((uid, new));
        }
        drop(users);
        self.tell_rates(&config)?;
        for (uid, limits) in limits {
            self.tell_rate(uid, &limits)?;
        }
        info!("reloaded {}", self.config_path.display());
        Ok(())
    }

    /// Tells the door the rates of users without their own.
    fn tell_rates(&self, config: &Config) -> io::Result<()> {
        self.tell_rate(UserRate::EVERYBODY, &config.limits)
    }

    /// Tells the door the accounts of subordinate ids.
    fn tell_subordinates(&self) -> io::Result<()> {
        let ranges = self.subordinates.ranges();
        let most = MESSAGE_MAX / size_of::<IdRange>();
        self.relay.send(Kind::Subordinates, 0, 0, &[], &[])?;
        for part in ranges.chunks(most) {
            let bytes = part.as_bytes();
            self.relay.send(Kind::Subordinates, 0, 1, bytes, &[])?;
        }
        Ok(())
    }

    fn tell_rate(&self, uid: u32, limits: &Limits) -> io::Result<()> {
        let rate = UserRate {
            uid,
            connections: u32::try_from(limits.connections.get()).unwrap_or(u32::MAX),
            per_s: limits.requests_per_s.get(),
            burst: limits.requests_burst.get(),
        };
        self.relay.send(Kind::Rate, 0, 0, rate.as_bytes(), &[])
    }

    fn note_slow(&mut self, packet: &Packet) {
        let Some(client) = self.clients.get(&packet.connection) else {
            return;
        };
        let (uid, count) = (client.who.account, packet.detail);
        self.shared.users().add_slow(uid, count);
        if let Some(left_out) = self.lines.admit((uid, "slow"), now_ns()) {
            warn!(
                left_out,
                "{client} asks too fast: {count} requests of its user had to wait"
            );
        }
    }

    fn tell_refused(&mut self, number: u64, subject: &str, limit: u64) {
        let Some(client) = self.clients.get(&number) else {
            return;
        };
        if let Some(left_out) = self.lines.admit((client.who.account, "quota"), now_ns()) {
            warn!(
                left_out,
                "{client} has all that it may have: {subject}, at most {limit}"
            );
        }
    }

    fn tell_expelled(&mut self, number: u64, what: &str) {
        let Some(client) = self.clients.get(&number) else {
            return;
        };
        self.shared.count(|figures| figures.expelled += 1);
        if let Some(left_out) = self.lines.admit((client.who.account, "expelled"), now_ns()) {
            warn!(left_out, "{client} is disconnected: it {what}");
        }
    }
}

/// Empties a pipe that only serves for wake-ups.
fn drain(wake: &OwnedFd) {
    let mut bytes = [0u8; 64];
    while matches!(rustix::io::read(wake, &mut bytes), Ok(count) if count == bytes.len()) {}
}
