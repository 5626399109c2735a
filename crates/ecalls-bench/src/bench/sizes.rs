//! Events by the size of their data: raised into a ring, and read from it.
//!
//! Up to 2152 bytes they are raised in the kernel; 64 KiB come from this program's memory, so that
//! their row includes a generic call, which is a system call.

use ecalls::{Channel, Raise};
use ecalls_kernel::measure::{self, Measure};

use super::Bench;
use super::timing::{MEAN, Value};
use crate::exit::{Code, Failure};

/// The rows of each size: a raise, and a read.
const SIZES: &[(u32, &str, &str)] = &[
    (0, "raise_0", "read_0"),
    (16, "raise_16", "read_16"),
    (168, "raise_168", "read_168"),
    (169, "raise_169", "read_169"),
    (1024, "raise_1024", "read_1024"),
    (2152, "raise_2152", "read_2152"),
];
const LARGE: usize = 65_536;

/// Events that are raised before they are read, and times that each batch does so.
const BATCH: u32 = 16;
const BATCHES: u32 = 100;
/// Capacity of a ring, in entries: for a batch of 2152 bytes and of 64 KiB.
const RING: u32 = 256;
const RING_LARGE: u32 = 8192;

/// Measures all rows about sizes.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::new();
    let mut channel = bench.ecalls.channel().ring(RING).open()?;
    let subscription = bench.ecalls.subscribe("core")?.memory(&channel).install()?;
    for &(size, raise, read) in SIZES {
        let batch = Measure {
            size,
            ..Measure::new(BATCH)
        };
        let rows = (raise, read);
        values.extend(row(bench, rows, &mut channel, || {
            Ok(measure::raise(bench.ecalls.core()?, &batch)?.total_ns)
        })?);
    }
    drop(subscription);
    let mut channel = bench.ecalls.channel().ring(RING_LARGE).open()?;
    let service = bench.ecalls.register_service("bench-sizes", "", "")?;
    let builder = bench.ecalls.subscribe("bench-sizes")?;
    let _subscription = builder.memory(&channel).install()?;
    let data = vec![1; LARGE];
    let rows = ("raise_65536", "read_65536");
    values.extend(row(bench, rows, &mut channel, || {
        let start_ns = ecalls::now_ns();
        for _ in 0..BATCH {
            service.raise(&Raise::new(&data))?;
        }
        Ok(ecalls::now_ns() - start_ns)
    })?);
    Ok(values)
}

/// Both rows of one size. `raise` raises a batch, and returns its time in ns.
fn row(
    bench: &Bench,
    (raise_row, read_row): (&'static str, &'static str),
    channel: &mut Channel,
    mut raise: impl FnMut() -> Result<u64, Failure>,
) -> Result<[Value; 2], Failure> {
    let batches = bench.effort.rounds(BATCHES);
    let events = f64::from(BATCH * batches);
    let mut read_ns = f64::INFINITY;
    let raise_ns = bench.effort.best(|| {
        let (mut raised, mut read) = (0, 0);
        for _ in 0..batches {
            raised += raise()?;
            let start_ns = ecalls::now_ns();
            for _ in 0..BATCH {
                if std::hint::black_box(channel.try_recv()).is_none() {
                    return Err(Failure::new(Code::Failed, "an event of the size is lost"));
                }
            }
            read += ecalls::now_ns() - start_ns;
        }
        read_ns = read_ns.min(read as f64 / events);
        Ok(raised as f64 / events)
    })?;
    let what = "a raise with so many bytes of data, to one memory subscription";
    Ok([
        Value::ns(raise_row, raise_ns, MEAN, what),
        Value::ns(read_row, read_ns, MEAN, "reading such an event"),
    ])
}
