//! The main loop: programs of this host on one side, the network of relays on the other.
//!
//! A program asks what a channel is (`Asking`), opens it, and enters (`Channel`). From then on
//! it is told which hosts have the channel, too. A host has one token for a channel, so one program
//! of this host is in it.
//!
//! Which hosts are in a channel, [`Hosts`] decides by what the network tells and by what reviews
//! find, which begin here.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ecalls_abi::relay::{
    RELAY_ASK, RELAY_COUNT, RELAY_COUNTED, RELAY_DIFFERS, RELAY_ENTER, RELAY_ENTERED, RELAY_FOUND,
    RELAY_FRAME, RELAY_IMPOSSIBLE, RELAY_INVALID, RELAY_JOINED, RELAY_LEFT, RELAY_LIST, RELAY_LOST,
    RELAY_NETWORK, RELAY_NONE, RELAY_OTHER, RELAY_OWN, RELAY_REFUSED, RELAY_SECOND, RELAY_SEND,
    RELAY_SETTLED, RELAY_TAKEN, RelayChannel, RelayCounts, RelayMessage, is_name,
};
use ecalls_abi::text;
use ecalls_abi::wire::{Wire, text_id};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::client::{Client, Received};
use crate::config::Config;
use crate::door::Door;
use crate::error::{Error, Result};
use crate::info::{Info, Policy, Useless, VERSION};
use crate::interface;
use crate::key::{Host, Name};
use crate::network::{Happening, Network, Presence};
use crate::refusal::Refusals;
use crate::review::{Hosts, Joined, SETTLE};

/// Connections of programs: as many as a core has channels.
const CLIENTS_MAX: usize = 64;

/// Messages of one program that are read before the others have their turn.
const TURN: usize = 16;

/// Frames that are passed on before programs have their turn.
const FRAMES_TURN: usize = 256;

/// Channels of a cluster that are listed.
const LISTED_MAX: usize = 1024;

/// How often it asks within [`SETTLE`], if nobody answers.
const AGAIN: Duration = Duration::from_millis(250);

/// A question to all hosts.
#[derive(Debug)]
struct Asking {
    client: u64,
    name: Name,
    channel: RelayChannel,
    /// It asks for all channels of the cluster.
    is_list: bool,
    /// The answers, without those that say the same.
    answers: Vec<(Name, Info)>,
    /// Relays of another version have answered, too.
    has_others: bool,
    /// Nobody has answered, since this relay may not have found anybody yet: when it asks again.
    again_at: Option<Instant>,
}

/// A channel that a program of this host has open.
#[derive(Debug)]
struct Channel {
    client: u64,
    policy: Policy,
    hosts: Hosts,
    _presence: Presence,
}

/// Why the relay does not serve any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to stop.
    Stopped,
    /// Its process has to begin anew: there is an interface now on which it finds other relays, and
    /// there was none when it started.
    Anew,
}

#[derive(Debug)]
pub struct Relay {
    config: Config,
    network: Network,
    /// There was no interface on which others could be looked for.
    is_alone: bool,
    door: Door,
    started: Instant,
    clients: BTreeMap<u64, Client>,
    asking: BTreeMap<u64, Asking>,
    /// Programs that ask for the counts, and what has been refused.
    counting: BTreeMap<u64, (u64, Refusals)>,
    channels: BTreeMap<Name, Channel>,
    /// The number of the next client, question or review.
    next: u64,
    /// What the network said when the queue was full, or a channel had too many hosts.
    ignored: u64,
    /// Answers that are none.
    impossible: u64,
    /// The log has it that a host's relay has another version.
    told_of_others: bool,
    /// How often another host said that it is this one.
    own: u64,
    /// How often one said that it is another one, which is there.
    second: u64,
}

impl Relay {
    /// Joins the network, and opens the door.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(config: Config) -> Result<Relay> {
        let is_alone = config.network.scouting && !interface::comes(&config.lane.interface);
        let network = Network::open(&config)?;
        let door = Door::open(&config.socket.path)?;
        Ok(Relay {
            config,
            network,
            is_alone,
            door,
            started: Instant::now(),
            clients: BTreeMap::new(),
            asking: BTreeMap::new(),
            counting: BTreeMap::new(),
            channels: BTreeMap::new(),
            next: 1,
            ignored: 0,
            impossible: 0,
            told_of_others: false,
            own: 0,
            second: 0,
        })
    }

    /// One line of status.
    pub fn status(&self) -> String {
        let hosts: usize = self.channels.values().map(|one| one.hosts.count()).sum();
        format!(
            "{} connected relays, {} channels with {hosts} other hosts; {} messages ignored",
            self.network.peers(),
            self.channels.len(),
            self.ignored + self.own + self.second + self.impossible + self.network.impossible()
        )
    }

    /// The session's identity.
    pub fn id(&self) -> String {
        self.network.id()
    }

    /// The name of the interface (empty: any) for want of which this relay finds no other one by
    /// multicast.
    pub fn wants_interface(&self) -> Option<&str> {
        self.is_alone.then_some(&self.config.lane.interface)
    }

    /// Serves until a byte can be read from `stop`, or the process has to begin anew. `told` is
    /// called with the status each time it may have changed.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn serve(&mut self, stop: &mut UnixStream, mut told: impl FnMut(&str)) -> Result<End> {
        loop {
            told(&self.status());
            let ready = self.wait(stop)?;
            let is_stopped = ready.stop && stop.read(&mut [0]).is_ok();
            if is_stopped || self.wants_interface().is_some_and(interface::is_there) {
                self.channels.clear();
                self.network.close();
                return Ok(if is_stopped { End::Stopped } else { End::Anew });
            }
            if ready.door {
                self.admit();
            }
            for client in ready.clients {
                if !self.turn(client) {
                    self.disconnect(client);
                }
            }
            self.network_turn();
            self.frames_turn();
            self.begin_reviews();
            self.ask_again();
        }
    }

    fn wait(&self, stop: &UnixStream) -> Result<Ready> {
        let now = Instant::now();
        let due = self.channels.values();
        let due = due.filter_map(|channel| channel.hosts.due());
        let again = self.asking.values().filter_map(|asking| asking.again_at);
        let clogged = self.clients.values().filter_map(Client::clogged_until);
        let clogged = clogged.filter(|until| *until > now);
        let look_again = self.is_alone.then(|| now + interface::LOOK_EVERY);
        let left = due
            .chain(again)
            .chain(clogged)
            .chain(look_again)
            .min()
            .map(|at| at.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let wake = self.network.wake();
        let mut fds = vec![
            PollFd::from_borrowed_fd(rustix::fd::AsFd::as_fd(stop), PollFlags::IN),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
            PollFd::from_borrowed_fd(self.door.socket(), PollFlags::IN),
        ];
        if self.clients.len() >= CLIENTS_MAX {
            fds.pop(); // it waits until one has ended
        }
        let clients_at = fds.len();
        // Programs wait while the network does.
        let may_send = self.network.has_room();
        let polled = self.clients.iter();
        let polled = polled.filter(|(_, client)| may_send || client.is_behind());
        let (numbers, polled): (Vec<u64>, Vec<&Client>) = polled.unzip();
        fds.extend(polled.iter().map(|client| {
            let flags = match client.is_behind() {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(client.socket(), flags)
        }));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(Error::errno("waiting")(errno)),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let clients = numbers.iter().zip(&fds[clients_at..]);
        Ok(Ready {
            stop: is_ready(&fds[0]),
            door: clients_at == 3 && is_ready(&fds[2]),
            clients: clients
                .filter(|(_, fd)| is_ready(fd))
                .map(|(number, _)| *number)
                .collect(),
        })
    }

    fn admit(&mut self) {
        while self.clients.len() < CLIENTS_MAX {
            let Some(socket) = self.door.accept() else {
                return;
            };
            let number = self.number();
            self.clients.insert(number, Client::new(socket));
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Reads from a program and writes to it. False: it has ended, or must.
    fn turn(&mut self, number: u64) -> bool {
        for _ in 0..TURN {
            let Some(client) = self.clients.get_mut(&number) else {
                return true;
            };
            if !client.flush() {
                return false;
            }
            if !self.network.has_room() {
                return true;
            }
            match client.receive() {
                Received::Nothing => return true,
                Received::Ended => return false,
                Received::Packet(packet) => {
                    if !self.request(number, &packet) {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn disconnect(&mut self, number: u64) {
        self.clients.remove(&number);
        self.asking.retain(|_, asking| asking.client != number);
        self.counting.retain(|_, (client, _)| *client != number);
        self.channels.retain(|_, channel| channel.client != number);
    }

    /// Does what a program asks for. False: it does not speak this language.
    fn request(&mut self, number: u64, packet: &[u8]) -> bool {
        let Some((message, rest)) = RelayMessage::parse(packet) else {
            if RelayMessage::other_version(packet).is_some() {
                let _ = self.refuse(number, RELAY_INVALID);
            }
            return false;
        };
        if message.kind == RELAY_SEND {
            self.send(&message, rest);
            return true;
        }
        if message.kind == RELAY_COUNT && rest.is_empty() {
            return self.count(number);
        }
        let Ok(channel) = RelayChannel::read_from_bytes(rest) else {
            return false;
        };
        let name = Name {
            cluster: text::read(&channel.cluster).to_owned(),
            channel: text::read(&channel.name).to_owned(),
        };
        let done = match message.kind {
            _ if !is_name(&name.cluster) => Err(RELAY_INVALID),
            RELAY_ASK | RELAY_ENTER if !is_name(&name.channel) => Err(RELAY_INVALID),
            RELAY_ASK | RELAY_LIST => self.ask(number, &name, channel, message.kind == RELAY_LIST),
            RELAY_ENTER => self.enter(number, name, &message, &channel),
            _ => return false,
        };
        match done {
            Ok(()) => true,
            Err(reason) => self.refuse(number, reason),
        }
    }

    fn refuse(&mut self, number: u64, reason: u32) -> bool {
        let refused = RelayMessage {
            reason,
            ..RelayMessage::new(RELAY_REFUSED, 0)
        };
        self.tell(number, refused, &[])
    }

    fn tell(&mut self, number: u64, message: RelayMessage, rest: &[u8]) -> bool {
        let client = self.clients.get_mut(&number);
        client.is_none_or(|client| client.send(message, rest))
    }

    fn count(&mut self, client: u64) -> bool {
        if self.counting.values().any(|(other, _)| *other == client) {
            return self.refuse(client, RELAY_INVALID);
        }
        let number = self.number();
        self.counting.insert(number, (client, Refusals::default()));
        let Err(error) = self.network.count(number) else {
            return true;
        };
        self.counting.remove(&number);
        self.refuse(client, report(error))
    }

    fn counted(&mut self, number: u64) {
        // The program may have ended.
        let Some((client, mut count)) = self.counting.remove(&number) else {
            return;
        };
        count[RELAY_OWN as usize] = self.own;
        count[RELAY_IMPOSSIBLE as usize] = self.impossible + self.network.impossible();
        count[RELAY_LOST as usize] = self.ignored;
        count[RELAY_SECOND as usize] = self.second;
        let message = RelayMessage::new(RELAY_COUNTED, 0);
        if !self.tell(client, message, RelayCounts { count }.as_bytes()) {
            self.disconnect(client);
        }
    }

    fn ask(&mut self, client: u64, name: &Name, channel: RelayChannel, is_list: bool) -> Reply {
        if self.asking.values().any(|asking| asking.client == client) {
            return Err(RELAY_INVALID);
        }
        let asking = Asking {
            client,
            name: name.clone(),
            channel,
            is_list,
            answers: Vec::new(),
            has_others: false,
            again_at: None,
        };
        self.ask_hosts(asking)
    }

    fn ask_hosts(&mut self, asking: Asking) -> Reply {
        let number = self.number();
        let key = match asking.is_list {
            true => asking.name.infos(),
            false => asking.name.info(),
        };
        self.network.ask(key, number).map_err(report)?;
        self.asking.insert(number, asking);
        Ok(())
    }

    /// Asks again what nobody has answered.
    fn ask_again(&mut self) {
        let now = Instant::now();
        let due = self.asking.iter();
        let due = due.filter(|(_, asking)| asking.again_at.is_some_and(|at| at <= now));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            let Some(mut asking) = self.asking.remove(&number) else {
                continue;
            };
            let client = asking.client;
            asking.again_at = None;
            if self.ask_hosts(asking).is_err() && !self.refuse(client, RELAY_NETWORK) {
                self.disconnect(client);
            }
        }
    }

    fn enter(
        &mut self,
        client: u64,
        name: Name,
        message: &RelayMessage,
        channel: &RelayChannel,
    ) -> Reply {
        let info = Info::of(channel, message.host).ok_or(RELAY_INVALID)?;
        if message.host == 0 || self.channels.values().any(|one| one.client == client) {
            return Err(RELAY_INVALID);
        }
        if self.channels.contains_key(&name) {
            return Err(RELAY_TAKEN);
        }
        let own = Host {
            id: message.host,
            address: message.address,
            format: text_id(&info.format),
        };
        let presence = self.network.enter(&name, &own, &info);
        let entered = Channel {
            client,
            policy: info.policy,
            hosts: Hosts::of(own, Instant::now()),
            _presence: presence.map_err(report)?,
        };
        self.channels.insert(name, entered);
        match self.tell(client, RelayMessage::new(RELAY_ENTERED, 0), &[]) {
            true => Ok(()),
            false => Err(RELAY_NETWORK), // and the next message finds that it has ended
        }
    }

    /// Sends a frame of a program of this host, if it is one: of a reliable channel that is open
    /// here, to a host that has it open, too. Else it is missing there.
    fn send(&mut self, message: &RelayMessage, frame: &[u8]) {
        let Ok((wire, _)) = Wire::read_from_prefix(frame) else {
            self.ignored += 1;
            return;
        };
        let mut channels = self.channels.iter();
        let found = channels.find(|(name, channel)| {
            channel.policy == Policy::Reliable
                && channel.hosts.own().id == wire.host
                && text_id(&name.channel) == wire.channel
        });
        match found {
            Some((name, channel)) if channel.hosts.has(message.host) => {
                let frame = frame.to_vec();
                if !self.network.send(name, message.host, wire.host, frame) {
                    self.ignored += 1;
                }
            }
            _ => self.ignored += 1,
        }
    }

    /// Passes on frames that have arrived, while the programs read them. One that does not read for
    /// long keeps no other one's frames waiting: its own are dropped, and missing.
    fn frames_turn(&mut self) {
        let now = Instant::now();
        for _ in 0..FRAMES_TURN {
            let mut clogged = self.clients.values().filter_map(Client::clogged_until);
            if clogged.any(|until| until > now) {
                return;
            }
            let Some((name, frame)) = self.network.next_frame() else {
                return;
            };
            let client = self.channels.get(&name).map(|channel| channel.client);
            let of = |client: &u64| self.clients.get(client);
            let reads = |client: &u64| of(client).is_some_and(|one| one.clogged_until().is_none());
            let Some(client) = client.filter(reads) else {
                self.ignored += 1;
                continue;
            };
            if !self.tell(client, RelayMessage::new(RELAY_FRAME, 0), &frame) {
                self.disconnect(client);
            }
        }
        self.network.rouse();
    }

    fn network_turn(&mut self) {
        let (happenings, ignored) = self.network.take();
        self.ignored += ignored;
        if ignored > 0 {
            let channels = self.channels.values_mut();
            channels.for_each(|channel| channel.hosts.see_no_more());
        }
        for happening in happenings {
            match happening {
                Happening::Host(name, host, present) => self.host(&name, host, present),
                Happening::Answer(number, key, text) => self.answer(number, &key, &text),
                Happening::Answered(number) => self.answered(number),
                Happening::Seen(number, host) => {
                    if let Some((_, hosts)) = self.reviewed(number) {
                        hosts.see(host);
                    }
                }
                Happening::Unseen(number) => {
                    if let Some((_, hosts)) = self.reviewed(number) {
                        hosts.see_no_more();
                    }
                }
                Happening::Reviewed(number) => self.end_review(number),
                Happening::Refused(number, refused) => {
                    if let Some((_, count)) = self.counting.get_mut(&number) {
                        *count = refused;
                    }
                }
                Happening::Counted(number) => self.counted(number),
            }
        }
    }

    fn answer(&mut self, number: u64, key: &str, text: &[u8]) {
        // The program may have ended.
        let Some(asking) = self.asking.get_mut(&number) else {
            return;
        };
        let most = if asking.is_list { LISTED_MAX } else { 2 };
        let answer = match (asking.name.sibling(key), Info::parse(text)) {
            (Some(name), Ok(info)) => (name, info),
            (name, parsed) => {
                self.impossible += 1;
                if let (Some(name), Err(Useless::Version(theirs))) = (name, parsed) {
                    asking.has_others = true;
                    if !std::mem::replace(&mut self.told_of_others, true) {
                        eprintln!(
                            "ecalls-relay: a host that has {}/{} open answers in version {theirs} \
                             of the relays' language, and this relay speaks {VERSION}: it gets no \
                             channel from there; relays of a cluster are of one release",
                            name.cluster, name.channel
                        );
                    }
                }
                return;
            }
        };
        // Two that differ are enough to know that they do.
        let (name, info) = &answer;
        let mut known = asking.answers.iter();
        let known = known.any(|(other, told)| other == name && told.agrees(info));
        if !known && asking.answers.len() < most {
            asking.answers.push(answer);
        }
    }

    fn answered(&mut self, number: u64) {
        let Some(mut asking) = self.asking.remove(&number) else {
            return;
        };
        let now = Instant::now();
        if asking.answers.is_empty() && now.duration_since(self.started) < SETTLE {
            asking.again_at = Some(now + AGAIN);
            self.asking.insert(number, asking);
            return;
        }
        let channel = &mut asking.channel;
        // check() of the configuration says that it fits.
        let _ = text::write(&mut channel.interface, &self.config.lane.interface);
        let message = |kind| RelayMessage::new(kind, size_of::<RelayChannel>());
        let told = match &asking.answers[..] {
            [(_, info)] if !asking.is_list => {
                info.write(channel);
                self.tell(asking.client, message(RELAY_FOUND), channel.as_bytes())
            }
            [] if asking.has_others && !asking.is_list => self.refuse(asking.client, RELAY_OTHER),
            [_, _, ..] if !asking.is_list => self.refuse(asking.client, RELAY_DIFFERS),
            listed => {
                let all = listed.iter().all(|(name, info)| {
                    let mut found = asking.channel;
                    info.write(&mut found);
                    let fits = text::write(&mut found.name, &name.channel).is_ok();
                    !fits || self.tell(asking.client, message(RELAY_FOUND), found.as_bytes())
                });
                all && self.tell(
                    asking.client,
                    message(RELAY_NONE),
                    asking.channel.as_bytes(),
                )
            }
        };
        if !told {
            self.disconnect(asking.client);
        }
    }

    /// A host has joined a channel or left it: tells the program, unless it knows.
    fn host(&mut self, name: &Name, host: Host, present: bool) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        let joined = present.then(|| channel.hosts.join(host));
        let is_news = match joined {
            Some(joined) => joined == Joined::News,
            None => channel.hosts.leave(&host),
        };
        match joined {
            Some(Joined::Own) => self.own += 1,
            Some(Joined::Second) => self.second += 1,
            Some(Joined::Full) => self.ignored += 1,
            Some(Joined::News | Joined::Known) | None => {}
        }
        let client = channel.client;
        let kind = if present { RELAY_JOINED } else { RELAY_LEFT };
        let message = RelayMessage {
            host: host.id,
            format: host.format,
            address: host.address,
            ..RelayMessage::new(kind, 0)
        };
        if is_news && !self.tell(client, message, &[]) {
            self.disconnect(client);
        }
    }

    /// The channel whose review has this number, and its hosts.
    fn reviewed(&mut self, number: u64) -> Option<(&Name, &mut Hosts)> {
        let all = self.channels.iter_mut();
        let mut all = all.map(|(name, channel)| (name, &mut channel.hosts));
        all.find(|(_, hosts)| hosts.is_reviewed_by(number))
    }

    fn begin_reviews(&mut self) {
        let now = Instant::now();
        let pause = Duration::from_millis(self.config.network.review_ms);
        let is_due = |channel: &Channel| channel.hosts.due().is_some_and(|at| at <= now);
        let due = self.channels.iter().filter(|(_, one)| is_due(one));
        let due: Vec<Name> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            let number = self.number();
            let asked = self.network.review(&name, number).map_err(report);
            if let Some(channel) = self.channels.get_mut(&name) {
                channel.hosts.begin(asked.ok().map(|()| number), now, pause);
            }
        }
    }

    fn end_review(&mut self, number: u64) {
        let pause = Duration::from_millis(self.config.network.review_ms);
        let Some((name, hosts)) = self.reviewed(number) else {
            return;
        };
        let (name, found) = (name.clone(), hosts.end(Instant::now(), pause));
        for host in found.left {
            self.host(&name, host, false);
        }
        for host in found.seen {
            self.host(&name, host, true);
        }
        if found.is_complete {
            self.settle(&name);
        }
    }

    /// Tells the program that it knows all hosts, once, when this relay has had time to find them.
    fn settle(&mut self, name: &Name) {
        let (now, started) = (Instant::now(), self.started);
        let channel = self.channels.get_mut(name);
        let Some(client) =
            channel.and_then(|one| one.hosts.settle(now, started).then_some(one.client))
        else {
            return;
        };
        if !self.tell(client, RelayMessage::new(RELAY_SETTLED, 0), &[]) {
            self.disconnect(client);
        }
    }
}

/// Nothing, or why a request is refused.
type Reply = std::result::Result<(), u32>;

fn report(error: Error) -> u32 {
    eprintln!("ecalls-relay: {error}");
    RELAY_NETWORK
}

/// What [`Relay::wait`] has found.
#[derive(Debug, Default)]
struct Ready {
    stop: bool,
    door: bool,
    clients: Vec<u64>,
}
