//! What is measured: everything of the daemon that could grow, and how long events take.
//!
//! Of the kernel side that is what the daemon holds, as its descriptors tell (fdinfo). What nobody
//! holds any more and the kernel keeps all the same shows in the number of maps and in the memory
//! of the whole machine, which others use as well.

use std::collections::HashSet;
use std::fs;

use hdrhistogram::Histogram;

use crate::daemon::Daemon;

/// One measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Memory of the daemon's processes, kB.
    pub(crate) rss_kb: u64,
    /// Their descriptors.
    pub(crate) descriptors: u64,
    /// Their threads.
    pub(crate) threads: u64,
    /// Maps that they hold.
    pub(crate) maps: u64,
    /// Memory of these, kB.
    pub(crate) maps_kb: u64,
    /// Programs that they hold.
    pub(crate) programs: u64,
    /// Links that they hold.
    pub(crate) links: u64,
    /// Maps of the machine.
    pub(crate) all_maps: u64,
    /// Memory that the kernel took for itself, of the whole machine, kB.
    pub(crate) kernel_kb: u64,
    /// Events that were received since the last measurement.
    pub(crate) events: u64,
    /// How long half of them took at most, us.
    pub(crate) p50_us: u64,
    /// How long 99 of 100 of them took at most, us.
    pub(crate) p99_us: u64,
}

/// What of the kernel side a process holds: ids.
#[derive(Debug, Default)]
pub(crate) struct Held {
    maps: HashSet<u64>,
    programs: HashSet<u64>,
    links: HashSet<u64>,
}

impl Held {
    /// Whether that is the id of one of its programs or maps.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.maps.contains(&id.into()) || self.programs.contains(&id.into())
    }
}

/// Measures. `latency` is that of the time since the last measurement.
pub(crate) fn look(daemon: &Daemon, latency: &Histogram<u64>) -> Result<Sample, String> {
    let mut sample = Sample {
        all_maps: ecalls_kernel::map_ids().count() as u64,
        kernel_kb: kernel_kb()?,
        events: latency.len(),
        p50_us: latency.value_at_quantile(0.5) / 1000,
        p99_us: latency.value_at_quantile(0.99) / 1000,
        ..Sample::default()
    };
    let held = look_at_processes(daemon, &mut sample)?;
    sample.maps = held.maps.len() as u64;
    sample.programs = held.programs.len() as u64;
    sample.links = held.links.len() as u64;
    Ok(sample)
}

/// What the daemon holds.
pub(crate) fn held(daemon: &Daemon) -> Result<Held, String> {
    look_at_processes(daemon, &mut Sample::default())
}

fn look_at_processes(daemon: &Daemon, sample: &mut Sample) -> Result<Held, String> {
    let mut held = Held::default();
    for process in daemon.processes() {
        add_process(sample, &mut held, process).map_err(|error| {
            format!("looking at the daemon's process {process}, which must run: {error}")
        })?;
    }
    Ok(held)
}

fn add_process(sample: &mut Sample, held: &mut Held, process: u32) -> std::io::Result<()> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    sample.rss_kb += field(&status, "VmRSS:").unwrap_or(0);
    sample.threads += field(&status, "Threads:").unwrap_or(0);
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        sample.descriptors += 1;
        // A descriptor may be closed while we look.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        if let Some(link) = field(&text, "link_id:") {
            held.links.insert(link);
        } else if let Some(map) = field(&text, "map_id:") {
            if held.maps.insert(map) {
                sample.maps_kb += field(&text, "memlock:").unwrap_or(0) / 1024;
            }
        } else if let Some(program) = field(&text, "prog_id:") {
            held.programs.insert(program);
        }
    }
    Ok(())
}

/// What the kernel keeps for its own use: slabs that it cannot shrink, and memory per CPU, where
/// maps are.
fn kernel_kb() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/meminfo")
        .map_err(|error| format!("reading /proc/meminfo: {error}"))?;
    let fields = ["SUnreclaim:", "Percpu:", "VmallocUsed:"];
    Ok(fields.iter().filter_map(|name| field(&text, name)).sum())
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_the_number_behind_its_name() {
        let text = "VmRSS:\t    1234 kB\nThreads:\t2\nmap_id:\t7\n";
        assert_eq!(field(text, "VmRSS:"), Some(1234));
        assert_eq!(field(text, "map_id:"), Some(7));
        assert_eq!(field(text, "memlock:"), None);
    }
}
