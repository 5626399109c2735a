//! Reads the counters of the core: services, subscriptions, channels, queues.

use ecalls_abi::channel::{Channel, STATE_ACTIVE, STATE_FREE};
use ecalls_abi::service::{
    SERVICE_CPU, ServiceCount, ServiceInfo, ServiceLatency, SubscriptionCount,
};
use ecalls_abi::subscription::Subscription;
use ecalls_abi::version::{CHANNELS_MAX, SUBSCRIPTIONS_MAX};
use libbpf_rs::{MapCore, MapFlags};

use crate::core::{Core, Cost};
use crate::core::{builtin, load, sampler};
use crate::error::{Error, Result};

/// One service with its counters.
#[derive(Clone, Debug)]
pub struct ServiceStat {
    pub index: u32,
    /// Name, format, kinds.
    pub info: ServiceInfo,
    /// Owner of an application service; 0: built in.
    pub owner: u32,
    /// Its threshold or period, ns, if it is a built-in service with such a parameter.
    pub parameter_ns: Option<u64>,
    pub subscriptions: usize,
    /// Sum over CPUs.
    pub count: ServiceCount,
    /// The cost of its programs (while BPF statistics are enabled) and the runs that the kernel
    /// skipped.
    pub costs: Vec<Cost>,
}

/// One subscription with its counters.
#[derive(Clone, Debug)]
pub struct SubscriptionStat {
    pub row: Subscription,
    /// Sum over CPUs.
    pub count: SubscriptionCount,
}

/// The owner of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOwner {
    /// Events raised on that CPU.
    Cpu(u32),
    /// Chains that continue in kernel threads.
    Threads,
    /// Signals that wait for their receiver.
    Signals,
}

impl QueueOwner {
    /// The owner of the queue at `index`.
    pub(crate) fn new(index: u32, cpus: u32) -> QueueOwner {
        match index.checked_sub(cpus) {
            None => QueueOwner::Cpu(index),
            Some(0) => QueueOwner::Threads,
            Some(_) => QueueOwner::Signals,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct QueueStat {
    /// Its owner.
    pub owner: QueueOwner,
    /// Events that wait for delivery.
    pub ready: u32,
    /// Events that wait for their release time.
    pub held: u32,
}

impl Core {
    pub fn services(&self) -> Result<Vec<ServiceStat>> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(index) = self.next_service(from)? {
            found.push(self.service_stat(index)?);
            from = index + 1;
        }
        Ok(found)
    }

    /// A service's name, format and kinds; empty if the row was never used.
    pub fn service_info(&self, index: u32) -> Result<ServiceInfo> {
        self.tables.infos.get(index)
    }

    /// The latency of a service's dispatched events from their raise or release, summed over CPUs.
    pub fn service_latency(&self, index: u32) -> Result<ServiceLatency> {
        let mut latency = ServiceLatency::default();
        for one in self.tables.latencies.per_cpu(index)? {
            latency.add(&one);
        }
        // What was dispatched at once took no time.
        for one in self.tables.service_counts.per_cpu(index)? {
            latency.count[0] = latency.count[0].wrapping_add(one.direct);
        }
        Ok(latency)
    }

    pub fn service_stat(&self, index: u32) -> Result<ServiceStat> {
        let row = self.tables.services.get(index)?;
        let subscriptions = crate::core::audience::active(self, index)?.count();
        let mut count = ServiceCount::default();
        for one in self.tables.service_counts.per_cpu(index)? {
            count.add(&one);
        }
        Ok(ServiceStat {
            index,
            info: self.tables.infos.get(index)?,
            owner: row.owner,
            parameter_ns: builtin::parameter(index).ok().map(|_| row.parameter),
            subscriptions,
            count,
            costs: self.costs(index)?,
        })
    }

    /// The state of a service's row, `STATE_*` of `ecalls_abi::channel`.
    pub fn service_state(&self, index: u32) -> Result<u32> {
        Ok(self.tables.services.get(index)?.state)
    }

    /// Index of the service of that name.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names of all services.
    pub fn find_service(&self, name: &str) -> Result<u32> {
        if let Some(index) = crate::core::service::find(self, name)?
            && self.tables.services.get(index)?.state == STATE_ACTIVE
        {
            return Ok(index);
        }
        let known: Vec<_> = self
            .services()?
            .iter()
            .map(|stat| stat.info.name().to_owned())
            .collect();
        Err(Error::Unknown {
            what: "service",
            name: name.to_owned(),
            hint: format!("there are {}", known.join(", ")),
        })
    }

    /// Every subscription that is not free.
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionStat>> {
        let mut found = Vec::new();
        for index in 0..SUBSCRIPTIONS_MAX as u32 {
            let row = self.tables.subscriptions.get(index)?;
            if row.id == 0 {
                break;
            }
            if row.state != STATE_FREE {
                found.push(SubscriptionStat {
                    row,
                    count: self.subscription_count(index)?,
                });
            }
        }
        Ok(found)
    }

    pub fn subscription(&self, index: u32) -> Result<SubscriptionStat> {
        Ok(SubscriptionStat {
            row: self.tables.subscriptions.get(index)?,
            count: self.subscription_count(index)?,
        })
    }

    /// The counters of the subscription at `index`, summed over CPUs.
    pub fn subscription_count(&self, index: u32) -> Result<SubscriptionCount> {
        let mut count = SubscriptionCount::default();
        for one in self.tables.subscription_counts.per_cpu(index)? {
            count.add(&one);
        }
        Ok(count)
    }

    /// Every channel that is not free.
    pub fn channels(&self) -> Result<Vec<Channel>> {
        let mut found = Vec::new();
        for index in 0..CHANNELS_MAX as u32 {
            let row = self.tables.channels.get(index)?;
            if row.id == 0 {
                break;
            }
            if row.state != STATE_FREE {
                found.push(row);
            }
        }
        Ok(found)
    }

    /// The state of every queue.
    pub fn queues(&self) -> Result<Vec<QueueStat>> {
        let queues = self.map(load::queues_map())?;
        (0..self.cpus() + 2)
            .map(|index| {
                let cell = queues
                    .lookup(&index.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|error| Error::from_bpf("reading a queue", &error))?
                    .ok_or(Error::Closed("a queue"))?;
                let word = |at: usize| {
                    let first = cell.get(at..).and_then(<[u8]>::first_chunk);
                    first.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
                };
                Ok(QueueStat {
                    owner: QueueOwner::new(index, self.cpus()),
                    ready: word(READY_COUNT),
                    held: word(HELD_COUNT),
                })
            })
            .collect()
    }

    /// How many queued events have a place for data beyond their record (bpf/event/rest.h).
    pub fn places_in_use(&self) -> Result<u32> {
        let uses = self.map("rest_uses")?;
        let mut count = 0;
        for cpu in 0..self.cpus() {
            let taken = uses
                .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| Error::from_bpf("reading the places", &error))?
                .ok_or(Error::Closed("the places"))?;
            count += taken.iter().map(|byte| byte.count_ones()).sum::<u32>();
        }
        Ok(count)
    }

    /// Sets the parameter of a built-in service, its threshold or period, ns, for all its
    /// subscribers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a service without a parameter, or a value outside its limits.
    pub fn set_parameter(&self, service: u32, value: u64) -> Result<()> {
        let (least, most) = builtin::parameter(service)?.limits_ns;
        if !(least..=most).contains(&value) {
            return Err(Error::Invalid {
                what: "the service's parameter",
                given: format!("{value} ns"),
                expected: "a period from 10 ms to an hour",
            });
        }
        let _lock = crate::kernel::lock::lock()?;
        let mut row = self.tables.services.get(service)?;
        row.parameter = value;
        self.tables.services.set(service, &row)?;
        let wanted = row.own != 0 || !row.subscriptions().is_empty();
        if service == SERVICE_CPU && wanted {
            sampler::start(self, service)?; // its period may have become shorter
        }
        Ok(())
    }
}

/// Offsets of the counters of the two heaps in `struct queue_cell` (bpf/event/maps.h): lock and
/// padding (8), free_count, started, order (16), then heap: count, zero, 1024 entries of 24 bytes.
const READY_COUNT: usize = 24;
const HELD_COUNT: usize = READY_COUNT + 8 + 1024 * 24;
