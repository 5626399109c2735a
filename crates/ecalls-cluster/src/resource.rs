//! What hosts lend each other: a fixed list, so that every host means the same by a number.

use std::fmt;
use std::str::FromStr;

/// A kind of resource. An amount is a whole number of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Thousandths of a CPU.
    Cpu,
    /// MiB of memory.
    Memory,
    /// MiB per second of disks.
    Disk,
    /// Mbit per second of the network.
    Net,
    /// Jobs at a time: what a job is, those decide who use it.
    Job,
}

/// How many kinds there are.
pub const RESOURCES: usize = 5;

/// The largest amount that a host can offer.
pub const AMOUNT_MAX: u64 = 1 << 40;

impl Resource {
    /// All of them, by number.
    pub const ALL: [Resource; RESOURCES] = [
        Resource::Cpu,
        Resource::Memory,
        Resource::Disk,
        Resource::Net,
        Resource::Job,
    ];

    /// Its number in messages.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The one with this number.
    pub fn of_number(number: u32) -> Option<Resource> {
        Resource::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Disk => "disk",
            Resource::Net => "net",
            Resource::Job => "job",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Resource {
    type Err = String;

    fn from_str(text: &str) -> Result<Resource, String> {
        let mut all = Resource::ALL.into_iter();
        let found = all.find(|resource| resource.name() == text);
        found.ok_or_else(|| "a resource is cpu, memory, disk, net or job".to_owned())
    }
}

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts(pub [u64; RESOURCES]);

impl Amounts {
    /// That of one resource.
    pub fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// The place of one resource's.
    pub fn of_mut(&mut self, resource: Resource) -> &mut u64 {
        &mut self.0[resource as usize]
    }
}
