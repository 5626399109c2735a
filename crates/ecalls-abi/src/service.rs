//! `abi/service.h`: services, their counters, and the data of each built-in service's events.
//!
//! The kernel side reads [`Service`] for every event; people and programs read [`ServiceInfo`]
//! (name, format). The subscriber list is double: the host writes the list that is not in use,
//! waits until no program reads it any more, and flips `active`.

use core::net::{IpAddr, Ipv6Addr};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::channel::{DROP_REASONS, DropReason};
use crate::text;
use crate::version::{FORMAT_MAX, NAME_MAX, SUBSCRIBERS_MAX};

/// How a chain counts in [`Service::slow`], that is neither one put nor a filter before it.
pub const SLOW_CHAIN: u32 = 256;
/// How many filters run without the queue; with more, all use it.
pub const SLOW_FILTERS: u32 = 24;

/// `struct ecalls_service`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Service {
    /// `STATE_*` of [`crate::channel`].
    pub state: u32,
    /// Process of an application service; 0: built in.
    pub owner: u32,
    /// The list in use: 0 or 1.
    pub active: u32,
    /// Wake-one: the next subscription in turn; written by the kernel side.
    pub next: u32,
    /// Smallest relative deadline of the subscriptions; 0: none.
    pub deadline_ns: u64,
    /// Built in: threshold or period, ns, as the service defines; applications': number of names
    /// that the row has had.
    pub parameter: u64,
    /// Start time of the owner (since boot, ns), against pid reuse.
    pub owner_start: u64,
    /// Time of the last flip of `active`; host only.
    pub flip_ns: u64,
    /// Row of [`crate::user`] of an application service.
    pub user: u32,
    /// User of its owner.
    pub owner_uid: u32,
    /// Built-in: subscriptions with scope OWN, which are in [`crate::audience`]s.
    pub own: u32,
    /// Deliveries are traced until this time, in 2^30 ns; 0: not traced. Written by the kernel
    /// side.
    pub traced: u32,
    /// Subscriptions in each list.
    pub count: [u32; 2],
    /// What these do beside one put into memory (see [`crate::Subscription::plain`]): a filter
    /// counts 1, any other chain [`SLOW_CHAIN`].
    pub slow: [u32; 2],
    /// The same of those with scope OWN.
    pub slow_own: u32,
    /// 1 + the only subscription of the list in use, if it has [`crate::Subscription::sole`]; 0:
    /// there are others.
    pub sole: u32,
    /// Indices, in order of delivery.
    pub list: [[u32; SUBSCRIBERS_MAX]; 2],
}

const _: () = assert!(size_of::<Service>() == 600, "service");

impl Default for Service {
    fn default() -> Service {
        Service::new_zeroed()
    }
}

impl Service {
    /// The list in use: indices of subscriptions, in order of delivery. Empty if `active` is
    /// neither 0 nor 1; a count above [`SUBSCRIBERS_MAX`] counts as [`SUBSCRIBERS_MAX`].
    pub fn subscriptions(&self) -> &[u32] {
        let active = usize::try_from(self.active).unwrap_or(usize::MAX);
        let (Some(list), Some(&count)) = (self.list.get(active), self.count.get(active)) else {
            return &[];
        };
        let count = usize::try_from(count).map_or(SUBSCRIBERS_MAX, |n| n.min(SUBSCRIBERS_MAX));
        &list[..count]
    }
}

/// `struct ecalls_service_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ServiceInfo {
    /// The unique name, as a C text; see [`ServiceInfo::name`].
    pub name: [u8; NAME_MAX],
    /// Fields of the data: `u64 cookie; u16 port; char comm[16]`.
    pub format: [u8; FORMAT_MAX],
    /// Names of the kinds, in order: `data connection`.
    pub kinds: [u8; FORMAT_MAX],
}

const _: () = assert!(size_of::<ServiceInfo>() == 1056, "service info");

impl Default for ServiceInfo {
    fn default() -> ServiceInfo {
        ServiceInfo::new_zeroed()
    }
}

impl ServiceInfo {
    /// The unique name.
    pub fn name(&self) -> &str {
        text::read(&self.name)
    }

    /// The fields of the data, as text.
    pub fn format(&self) -> &str {
        text::read(&self.format)
    }

    /// The names of the kinds; the n-th is the name of kind n.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        text::read(&self.kinds).split_whitespace()
    }
}

/// `struct ecalls_service_count`: event counts of a service (one per CPU; sum them).
///
/// `raised = dispatched + late + sum(dropped)`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ServiceCount {
    /// Calls of `raise_event`, except those with bad arguments.
    pub raised: u64,
    /// Events taken from the queue in time and offered to subscriptions.
    pub dispatched: u64,
    /// Events taken from the queue after their deadline.
    pub late: u64,
    /// Dropped, by [`DropReason`].
    pub dropped: [u64; DROP_REASONS],
    /// Not raised: too much data, unknown service, no permission.
    pub refused: u64,
    /// Sum over dispatched events of dispatch time - max(raise, release).
    pub latency_ns: u64,
    /// The largest of them.
    pub latency_ns_max: u64,
    /// Runs of its own program that ended in a fault (E-code).
    pub failed: u64,
    /// Of one CPU: raised and dispatched at once, and not in `raised` and `dispatched`. A sum has
    /// them there, and 0 here.
    pub direct: u64,
    /// Zero.
    pub pad: u64,
}

const _: () = assert!(size_of::<ServiceCount>() == 192, "service count");

impl ServiceCount {
    /// Adds another CPU's counts; sums wrap like the kernel side's counters, the maximum is kept.
    pub fn add(&mut self, other: &ServiceCount) {
        let (raised, dispatched) = (&mut self.raised, &mut self.dispatched);
        *raised = raised.wrapping_add(other.raised).wrapping_add(other.direct);
        *dispatched = dispatched
            .wrapping_add(other.dispatched)
            .wrapping_add(other.direct);
        self.late = self.late.wrapping_add(other.late);
        add_each(&mut self.dropped, &other.dropped);
        self.refused = self.refused.wrapping_add(other.refused);
        self.latency_ns = self.latency_ns.wrapping_add(other.latency_ns);
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.failed = self.failed.wrapping_add(other.failed);
    }

    /// Events dropped for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }
}

/// Counters of [`ServiceLatency`].
pub const LATENCY_BUCKETS: usize = 32;

/// `struct ecalls_service_latency`: the latency of dispatched events from raise or release, one per
/// CPU. `count[i]` counts those of 2^i ns to 2^(i+1) ns; the first one also counts shorter ones,
/// the last one longer ones.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ServiceLatency {
    /// Events by the logarithm of their latency.
    pub count: [u64; LATENCY_BUCKETS],
}

const _: () = assert!(size_of::<ServiceLatency>() == 256, "service latency");

impl ServiceLatency {
    /// Adds the counts of another CPU.
    pub fn add(&mut self, other: &ServiceLatency) {
        for (sum, count) in self.count.iter_mut().zip(other.count) {
            *sum = sum.wrapping_add(count);
        }
    }
}

/// `struct ecalls_subscription_count`: offers of events to a subscription (one per CPU; sum them).
///
/// `offered = delivered + filtered + late + sum(dropped)` once no event is in a queue.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SubscriptionCount {
    /// Events offered to the subscription.
    pub offered: u64,
    /// The chain reached a delivery (memory, signal, user or thread handler) that succeeded, or
    /// its end.
    pub delivered: u64,
    /// A handler ended the chain before any delivery.
    pub filtered: u64,
    /// Discarded because the subscription's deadline had passed.
    pub late: u64,
    /// Dropped, by [`DropReason`].
    pub dropped: [u64; DROP_REASONS],
    /// Wake-ups of a sleeping reader.
    pub wakes: u64,
    /// Real-time signals queued.
    pub signals: u64,
    /// Runs of a kernel thread.
    pub threads: u64,
    /// Runs of a kernel handler.
    pub handlers: u64,
    /// Of the delivered ones: another action of the chain could not deliver; the channel concerned
    /// shows the reason.
    pub partial: u64,
    /// Of the runs of a handler: E-code that ended in a fault.
    pub failed: u64,
    /// Effects that E-code requested (signal, raise, ...) and that could not be executed.
    pub undone: u64,
    /// Of one CPU: offered and delivered at once, and not in `offered` and `delivered`. A sum has
    /// them there, and 0 here.
    pub direct: u64,
    /// The same of those that a filter ended: not in `offered` and `filtered`.
    pub stopped: u64,
}

const _: () = assert!(size_of::<SubscriptionCount>() == 224, "subscription count");

impl SubscriptionCount {
    /// Adds another CPU's counts; sums wrap like the kernel side's counters.
    pub fn add(&mut self, other: &SubscriptionCount) {
        let (offered, delivered) = (&mut self.offered, &mut self.delivered);
        *offered = offered
            .wrapping_add(other.offered)
            .wrapping_add(other.direct)
            .wrapping_add(other.stopped);
        *delivered = delivered
            .wrapping_add(other.delivered)
            .wrapping_add(other.direct);
        let filtered = self.filtered.wrapping_add(other.filtered);
        self.filtered = filtered.wrapping_add(other.stopped);
        self.late = self.late.wrapping_add(other.late);
        add_each(&mut self.dropped, &other.dropped);
        self.wakes = self.wakes.wrapping_add(other.wakes);
        self.signals = self.signals.wrapping_add(other.signals);
        self.threads = self.threads.wrapping_add(other.threads);
        self.handlers = self.handlers.wrapping_add(other.handlers);
        self.partial = self.partial.wrapping_add(other.partial);
        self.failed = self.failed.wrapping_add(other.failed);
        self.undone = self.undone.wrapping_add(other.undone);
    }

    /// Events dropped for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }

    /// Of a sum: events that were offered, and whose fate has not been counted yet.
    pub fn under_way(&self) -> u64 {
        let counted = [self.delivered, self.filtered, self.late].into_iter();
        let counted = counted.chain(self.dropped).fold(0, u64::wrapping_add);
        self.offered.wrapping_sub(counted)
    }
}

fn add_each(sums: &mut [u64; DROP_REASONS], counts: &[u64; DROP_REASONS]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum.wrapping_add(*count);
    }
}

/// The service `socket`: data and connections on registered sockets.
pub const SERVICE_SOCKET: u32 = 0;
/// The service `timer`.
pub const SERVICE_TIMER: u32 = 1;
/// The service `task`: forks, execs and exits.
pub const SERVICE_TASK: u32 = 2;
/// The service `sched`: threads that waited too long for a CPU.
pub const SERVICE_SCHED: u32 = 3;
/// The service `core`: the core's own tests and measurements.
pub const SERVICE_CORE: u32 = 4;
/// The service `net`: retransmissions, round-trip times and states of TCP connections.
pub const SERVICE_NET: u32 = 5;
/// The service `disk`: requests of block devices that took long.
pub const SERVICE_DISK: u32 = 6;
/// The service `memory`: waiting for memory, and what is killed for lack of it.
pub const SERVICE_MEMORY: u32 = 7;
/// The service `cpu`: utilization and pressure of control groups.
pub const SERVICE_CPU: u32 = 8;
/// Index of the first application service.
pub const SERVICE_USER: u32 = 16;

/// socket, kind: data arrived.
pub const SOCKET_DATA: u32 = 0;
/// socket, kind: a connection was completed.
pub const SOCKET_CONNECTION: u32 = 1;

/// `struct ecalls_socket_event`: the data of the service `socket`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SocketEvent {
    /// The kernel's socket cookie, constant for the socket's life.
    pub cookie: u64,
    /// DATA: bytes waiting (TCP), or datagrams' bytes (UDP).
    pub bytes: u32,
    /// CONNECTION: completed connections waiting for accept.
    pub backlog: u32,
    /// `AF_INET`, `AF_INET6`, `AF_UNIX`.
    pub family: u16,
    /// Local port, 0 for `AF_UNIX`.
    pub local_port: u16,
    /// Remote port, 0 for `AF_UNIX`.
    pub remote_port: u16,
    /// 1: registered through its listener.
    pub inherited: u16,
    /// Network byte order; 0 for other families.
    pub remote_ip4: u32,
    /// Zero.
    pub pad: u32,
}

/// `struct ecalls_socket_interest`: the registration of a socket (socket storage).
///
/// Written through the fd by the host.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SocketInterest {
    /// Process that receives its events, or `TARGET_*` of [`crate::event`].
    pub target: i32,
    /// `event.type` of its events: the fd, or any number below `SLOTS_MAX`.
    pub r#type: u32,
    /// Bit k: raise kind k.
    pub kinds: u32,
    /// 1: accepted connections are registered too.
    pub inherit: u32,
    /// Relative; 0: none.
    pub deadline_ns: u64,
    /// Process that registered it: `pid` and `uid` of its events.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Row of [`crate::user`] by which its waiting events are counted.
    pub user: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<SocketInterest>() == 40, "socket interest");

/// `struct ecalls_timer_event`: the data of the service `timer`; kind 0, an expiry.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct TimerEvent {
    /// The time of the expiry.
    pub expiry_ns: u64,
    /// Expiries of this timer so far, this one included.
    pub count: u64,
    /// Periods without an event of their own.
    pub overrun: u64,
    /// Number of the timer.
    pub timer: u32,
    /// Zero.
    pub pad: u32,
}

/// task, kind: a process or thread was created.
pub const TASK_FORK: u32 = 0;
/// task, kind: a process executed another program.
pub const TASK_EXEC: u32 = 1;
/// task, kind: a process or thread exited.
pub const TASK_EXIT: u32 = 2;

/// `struct ecalls_task_event`: the data of the service `task`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct TaskEvent {
    /// Process that forked, executed or exited.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Its parent process.
    pub parent: u32,
    /// FORK: id of the new thread or process.
    pub child: u32,
    /// EXIT: wait status.
    pub code: u32,
    /// 1: a thread of a process, not a process.
    pub thread: u32,
    /// Name of the thread, as a C text; see [`TaskEvent::comm`].
    pub comm: [u8; 16],
}

impl TaskEvent {
    /// Name of the thread.
    pub fn comm(&self) -> &str {
        text::read(&self.comm)
    }
}

/// `struct ecalls_sched_event`: the data of the service `sched`; kind 0, a thread waited on a run
/// queue for longer than the threshold.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SchedEvent {
    /// Time on the run queue.
    pub delay_ns: u64,
    /// Process of the thread that waited.
    pub pid: u32,
    /// The thread that waited.
    pub tid: u32,
    /// Kernel priority: 0..99 real time, 100..139 fair.
    pub priority: u32,
    /// Thread that ran before it.
    pub previous: u32,
    /// Name of the thread, as a C text; see [`SchedEvent::comm`].
    pub comm: [u8; 16],
}

impl SchedEvent {
    /// Name of the thread.
    pub fn comm(&self) -> &str {
        text::read(&self.comm)
    }
}

/// net, kind: a segment was retransmitted.
pub const NET_RETRANSMIT: u32 = 0;
/// net, kind: the round-trip time is above the threshold.
pub const NET_ROUND_TRIP: u32 = 1;
/// net, kind: the connection changed its state.
pub const NET_STATE: u32 = 2;

/// `struct ecalls_net_event`: the data of the service `net`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct NetEvent {
    /// The kernel's socket cookie.
    pub cookie: u64,
    /// Smoothed; 0: not measured yet.
    pub round_trip_us: u32,
    /// Segments that the connection has retransmitted so far.
    pub retransmits: u32,
    /// Segments that may be in flight (congestion window).
    pub window: u32,
    /// Local port.
    pub local_port: u16,
    /// Remote port.
    pub remote_port: u16,
    /// IPv6; for IPv4 the mapped form; see [`NetEvent::local_ip`].
    pub local_ip: [u8; 16],
    /// As `local_ip`.
    pub remote_ip: [u8; 16],
    /// The kernel's number: 1 established, 2 SYN sent, ..., 10 listening.
    pub state: u32,
    /// STATE: the previous state; else the same as `state`.
    pub former: u32,
}

const _: () = assert!(size_of::<NetEvent>() == 64, "net event");

impl NetEvent {
    /// The local address.
    pub fn local_ip(&self) -> IpAddr {
        Ipv6Addr::from(self.local_ip).to_canonical()
    }

    /// The remote address.
    pub fn remote_ip(&self) -> IpAddr {
        Ipv6Addr::from(self.remote_ip).to_canonical()
    }
}

/// disk, kind: a read.
pub const DISK_READ: u32 = 0;
/// disk, kind: a write.
pub const DISK_WRITE: u32 = 1;
/// disk, kind: the device's cache was written.
pub const DISK_FLUSH: u32 = 2;
/// disk, kind: blocks were discarded.
pub const DISK_DISCARD: u32 = 3;
/// disk, kind: another operation.
pub const DISK_OTHER: u32 = 4;

/// `struct ecalls_disk_event`: the data of the service `disk`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct DiskEvent {
    /// From the creation of the request to its completion.
    pub latency_ns: u64,
    /// Of that, the time after it was issued to the device.
    pub device_ns: u64,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Bytes read, written or discarded.
    pub bytes: u32,
    /// 0: success; else the kernel's number of a failure (`blk_status_t`).
    pub status: u32,
    /// Number of the disk, not of a partition.
    pub major: u32,
    /// As `major`.
    pub minor: u32,
    /// Name of the disk, as a C text; see [`DiskEvent::disk`].
    pub disk: [u8; 16],
    /// Name of the thread that made the request, as a C text; see [`DiskEvent::comm`].
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<DiskEvent>() == 72, "disk event");

impl DiskEvent {
    /// Name of the disk.
    pub fn disk(&self) -> &str {
        text::read(&self.disk)
    }

    /// Name of the thread that made the request.
    pub fn comm(&self) -> &str {
        text::read(&self.comm)
    }
}

/// memory, kind: a process had to reclaim memory itself.
pub const MEMORY_RECLAIM: u32 = 0;
/// memory, kind: a process is killed for lack of memory.
pub const MEMORY_VICTIM: u32 = 1;
/// memory, kind: threads of a control group waited for memory.
pub const MEMORY_PRESSURE: u32 = 2;

/// `struct ecalls_memory_event`: the data of the service `memory`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MemoryEvent {
    /// RECLAIM: its duration; PRESSURE: how long some threads waited.
    pub duration_ns: u64,
    /// PRESSURE: how long all threads waited.
    pub full_ns: u64,
    /// PRESSURE: the length of the interval.
    pub interval_ns: u64,
    /// RECLAIM: reclaimed pages; VICTIM: approximate pages in memory.
    pub pages: u64,
    /// Control group (version 2), as in [`CpuEvent`].
    pub cgroup: u64,
    /// RECLAIM: 1: because of a control group's limit; 0: because of the machine's.
    pub limited: u32,
    /// RECLAIM, VICTIM: the process.
    pub pid: u32,
    /// RECLAIM, VICTIM: its `oom_score_adj`.
    pub score: i32,
    /// Zero.
    pub pad: u32,
    /// RECLAIM, VICTIM: name of the thread, as a C text; see [`MemoryEvent::comm`].
    pub comm: [u8; 16],
    /// Name of the control group's directory, as a C text; see [`MemoryEvent::name`].
    pub name: [u8; 48],
}

const _: () = assert!(size_of::<MemoryEvent>() == 120, "memory event");

impl MemoryEvent {
    /// Name of the thread.
    pub fn comm(&self) -> &str {
        text::read(&self.comm)
    }

    /// Name of the control group's directory.
    pub fn name(&self) -> &str {
        text::read(&self.name)
    }
}

/// cpu, kind: the group used CPU time in the period.
pub const CPU_UTILIZATION: u32 = 0;
/// cpu, kind: some of its threads waited for a CPU.
pub const CPU_PRESSURE: u32 = 1;

/// `struct ecalls_cpu_event`: the data of the service `cpu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CpuEvent {
    /// Number of the control group's directory (inode); 1: the root, that is, the machine.
    pub cgroup: u64,
    /// The parent group; 0: none.
    pub parent: u64,
    /// Length of the measured period.
    pub period_ns: u64,
    /// CPU time that it and the groups in it used in the period.
    pub usage_ns: u64,
    /// The same in thousandths of one CPU.
    pub utilization: u32,
    /// Thousandths of the time in which some of its threads waited.
    pub pressure_some: u32,
    /// Thousandths of the time in which all of its threads waited.
    pub pressure_full: u32,
    /// Zero.
    pub pad: u32,
    /// Name of its directory, as a C text; see [`CpuEvent::name`].
    pub name: [u8; 72],
}

const _: () = assert!(size_of::<CpuEvent>() == 120, "cpu event");

impl CpuEvent {
    /// Name of the control group's directory.
    pub fn name(&self) -> &str {
        text::read(&self.name)
    }
}

/// Room for ids of each kind in [`Host`].
pub const HOST_IDS: usize = 128;
/// `flags` of [`Host`]: a daemon hosts the core: programs use the daemon, and do not join.
pub const HOST_DAEMON: u32 = 0x1;

/// `struct ecalls_host`: the core's identity, in the map `ecalls_host`, by which a second program
/// finds and joins a running core.
///
/// Written once by the program that loads the core, before anything is attached.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Host {
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Process that loaded the core.
    pub pid: u32,
    /// CPUs for which the queues were made.
    pub cpus: u32,
    /// 0: still being loaded, or its loader died; else a checksum of the loader's tables of maps
    /// and programs: other builds must not join.
    pub ready: u32,
    /// When it was loaded.
    pub start_ns: u64,
    /// [`HOST_DAEMON`].
    pub flags: u32,
    /// Zero.
    pub pad: u32,
    /// The fast call: `prctl`, `security`, `setsockopt` or `run`.
    pub mechanism: [u8; NAME_MAX],
    /// In the order of the loader's table of maps.
    pub map_ids: [u32; HOST_IDS],
    /// In the order of the loader's table of programs.
    pub prog_ids: [u32; HOST_IDS],
    /// Of the same programs' attachments, which change later.
    pub link_ids: [u32; HOST_IDS],
}

const _: () = assert!(size_of::<Host>() == 1600, "host");

impl Default for Host {
    fn default() -> Host {
        Host::new_zeroed()
    }
}

impl Host {
    /// Whether the core is completely loaded.
    pub fn is_ready(&self) -> bool {
        self.ready != 0
    }

    /// Whether a daemon hosts the core.
    pub fn is_daemon(&self) -> bool {
        self.flags & HOST_DAEMON != 0
    }

    /// The mechanism of the fast call.
    pub fn mechanism(&self) -> &str {
        text::read(&self.mechanism)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_those_of_the_active_list() {
        let mut service = Service {
            active: 1,
            count: [3, 2],
            ..Service::default()
        };
        service.list[1][..2].copy_from_slice(&[7, 5]);
        assert_eq!(service.subscriptions(), [7, 5]);
        service.active = 2;
        assert_eq!(service.subscriptions(), [0u32; 0]);
        (service.active, service.count[0]) = (0, u32::MAX);
        assert_eq!(service.subscriptions().len(), SUBSCRIBERS_MAX);
    }

    #[test]
    fn counts_of_cpus_add_up_and_the_maximum_is_kept() {
        let mut sum = ServiceCount {
            raised: 2,
            latency_ns_max: 9,
            ..ServiceCount::default()
        };
        let mut other = ServiceCount {
            raised: 3,
            latency_ns_max: 4,
            ..ServiceCount::default()
        };
        other.dropped[DropReason::QueueFull.index()] = 1;
        sum.add(&other);
        assert_eq!((sum.raised, sum.latency_ns_max), (5, 9));
        assert_eq!(sum.dropped(DropReason::QueueFull), 1);
    }

    #[test]
    fn counts_of_a_subscription_add_up() {
        let mut sum = SubscriptionCount {
            offered: u64::MAX,
            ..SubscriptionCount::default()
        };
        sum.add(&SubscriptionCount {
            offered: 2,
            wakes: 1,
            ..SubscriptionCount::default()
        });
        assert_eq!((sum.offered, sum.wakes), (1, 1));
        (sum.offered, sum.late) = (9, 2);
        sum.dropped[DropReason::QueueFull.index()] = 3;
        assert_eq!(sum.under_way(), 4);
    }

    #[test]
    fn service_info_is_readable_as_text() {
        let mut info = ServiceInfo::default();
        text::write(&mut info.name, "socket").unwrap();
        text::write(&mut info.kinds, "data connection").unwrap();
        assert_eq!(info.name(), "socket");
        assert_eq!(info.format(), "");
        assert!(info.kinds().eq(["data", "connection"]));
    }
}
