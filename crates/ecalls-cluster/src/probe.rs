//! What this host is doing, as the kernel tells in /proc. The texts are parsed by functions that
//! touch no file.

use std::fs;

/// Bytes of a sector in /proc/diskstats, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// Counters of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    at_ns: u64,
    busy: u64,
    all: u64,
    net_bytes: u64,
    disk_bytes: u64,
}

/// The rates between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Busy share of the CPUs, in thousandths.
    pub busy: u64,
    /// Memory that is available, MiB.
    pub memory_mib: u64,
    /// KiB per second of the network interfaces.
    pub net_kib: u64,
    /// KiB per second of the disks.
    pub disk_kib: u64,
}

/// Looks at this host, now and then.
#[derive(Debug, Default)]
pub struct Probe {
    before: Counters,
    rates: Rates,
}

/// Between two looks that are closer than this, counters have moved too little to tell a rate, ns.
const LEAST_NS: u64 = 100_000_000;

impl Probe {
    /// The rates since the look before. The first time, since the machine was started.
    pub fn look(&mut self, now_ns: u64) -> Rates {
        if self.before.at_ns != 0 && now_ns.saturating_sub(self.before.at_ns) < LEAST_NS {
            return self.rates;
        }
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (busy, all) = cpu(&text("/proc/stat"));
        let now = Counters {
            at_ns: now_ns,
            busy,
            all,
            net_bytes: net_bytes(&text("/proc/net/dev")),
            disk_bytes: disk_bytes(&text("/proc/diskstats")),
        };
        let memory_mib = available_mib(&text("/proc/meminfo"));
        self.rates = rates(&self.before, &now, memory_mib);
        self.before = now;
        self.rates
    }
}

fn rates(before: &Counters, now: &Counters, memory_mib: u64) -> Rates {
    let ns = now.at_ns.saturating_sub(before.at_ns).max(1);
    let kib = |before: u64, now: u64| {
        let bytes = u128::from(now.saturating_sub(before)) * 1_000_000_000 / u128::from(ns);
        u64::try_from(bytes / 1024).unwrap_or(u64::MAX)
    };
    let all = now.all.saturating_sub(before.all);
    Rates {
        busy: match all {
            0 => 0,
            _ => (now.busy.saturating_sub(before.busy) * 1000 / all).min(1000),
        },
        memory_mib,
        net_kib: kib(before.net_bytes, now.net_bytes),
        disk_kib: kib(before.disk_bytes, now.disk_bytes),
    }
}

/// Thousandths of a CPU that this host has, and MiB of memory.
pub fn capacity() -> (u64, u64) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    (cpus as u64 * 1000, meminfo(&text, "MemTotal:") / 1024)
}

/// Busy time and all time of the CPUs, in ticks.
fn cpu(stat: &str) -> (u64, u64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let words = line.unwrap_or_default().split_whitespace();
    // user nice system idle iowait irq softirq steal; guests are in user.
    let times: Vec<u64> = words
        .take(8)
        .map(|word| word.parse().unwrap_or(0))
        .collect();
    let all = times.iter().sum();
    let idle: u64 = times.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// KiB of a line of /proc/meminfo.
fn meminfo(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn available_mib(text: &str) -> u64 {
    meminfo(text, "MemAvailable:") / 1024
}

/// Bytes that the interfaces received and sent; the loopback one is none of the network.
fn net_bytes(dev: &str) -> u64 {
    let lines = dev.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.filter(|(name, _)| name.trim() != "lo");
    let bytes = lines.map(|(_, rest)| {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let word = |at: usize| {
            words
                .get(at)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0)
        };
        word(0) + word(8)
    });
    bytes.sum()
}

/// Bytes that the disks read and wrote. Partitions, and devices that are made of others, would
/// count the same bytes again.
fn disk_bytes(stats: &str) -> u64 {
    let mut sectors = 0u64;
    let mut last = String::new();
    for line in stats.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = words.get(2) else { continue };
        let of_others = ["loop", "ram", "zram", "dm-", "md", "sr"];
        if of_others.iter().any(|prefix| name.starts_with(prefix)) || is_part(name, &last) {
            continue;
        }
        last = (*name).to_owned();
        let word = |at: usize| {
            words
                .get(at)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0)
        };
        sectors = sectors.saturating_add(word(5)).saturating_add(word(9));
    }
    sectors.saturating_mul(SECTOR)
}

/// Whether a disk's name is that of a partition of `disk`: `sda1`, `nvme0n1p2`.
fn is_part(name: &str, disk: &str) -> bool {
    let rest = name.strip_prefix(disk).filter(|_| !disk.is_empty());
    let rest = rest.map(|rest| rest.strip_prefix('p').unwrap_or(rest));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        let stat = "cpu  10 20 30 400 40 5 6 7 1 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(cpu(stat), (78, 518));
        let meminfo = "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(available_mib(meminfo), 1);
        let dev = "Inter-|   Receive | Transmit\n face |bytes packets\n  \
                   lo: 9 1 0 0 0 0 0 0 9 1\n  \
                   eth0: 100 1 0 0 0 0 0 0 23 1 0\n";
        assert_eq!(net_bytes(dev), 123);
        let disks = "8 0 sda 1 0 10 0 1 0 20 0 0\n8 1 sda1 1 0 10 0 1 0 20 0 0\n7 0 loop0 1 0 5 0\n\
                     259 0 nvme0n1 1 0 1 0 1 0 1 0\n259 1 nvme0n1p1 1 0 1 0 1 0 1 0\n";
        assert_eq!(disk_bytes(disks), 32 * SECTOR);
        assert_eq!(
            (cpu(""), net_bytes("x: y"), disk_bytes("1\n")),
            ((0, 0), 0, 0)
        );
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let before = Counters {
            at_ns: 1_000_000_000,
            busy: 100,
            all: 1000,
            net_bytes: 4096,
            disk_bytes: 0,
        };
        let now = Counters {
            at_ns: 1_500_000_000,
            busy: 150,
            all: 1200,
            net_bytes: 8192,
            disk_bytes: 1024,
        };
        let expected = Rates {
            busy: 250,
            memory_mib: 7,
            net_kib: 8,
            disk_kib: 2,
        };
        assert_eq!(rates(&before, &now, 7), expected);
        assert_eq!(rates(&now, &now, 7).busy, 0);
    }
}
