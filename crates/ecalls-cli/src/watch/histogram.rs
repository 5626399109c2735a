//! The counters of the histogram handler, as a table.
//!
//! There are two buckets per power of two, as in bpf/lib/histogram.h: from 0, 1, 2, 3, 4, 6, 8, 12,
//! 16 and so on; the last one has no upper bound.

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::{Output, Table};

/// Width of the longest bar, characters.
const BAR: u64 = 40;

/// The smallest value of a bucket.
pub(crate) fn lower(bucket: usize) -> u64 {
    match bucket {
        0 | 1 => bucket as u64,
        _ => (2 | (bucket as u64 & 1)) << (bucket / 2 - 1),
    }
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    what: &'static str,
    field: &'a str,
    from: u64,
    count: u64,
}

/// Prints the buckets from the first to the last that is not empty. Values were shifted right by
/// `shift` before they were counted.
pub(super) fn print(out: &mut Output, field: &str, shift: u8, counts: &[u64; 64]) -> Outcome {
    let used = |count: &u64| *count != 0;
    let (Some(first), Some(last)) = (counts.iter().position(used), counts.iter().rposition(used))
    else {
        return Ok(());
    };
    let highest = counts.iter().max().copied().unwrap_or(1);
    let mut table = Table::new(&[">FROM", ">EVENTS", ""]);
    for (bucket, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let from = lower(bucket).checked_shl(shift.into()).unwrap_or(u64::MAX);
        if out.is_json() {
            out.object(&Row {
                what: "histogram",
                field,
                from,
                count,
            })?;
            continue;
        }
        let share = u128::from(count) * u128::from(BAR);
        let length = share.div_ceil(u128::from(highest));
        let bar = "#".repeat(usize::try_from(length).unwrap_or(0));
        table.row([from.to_string(), count.to_string(), bar]);
    }
    if out.is_json() {
        return Ok(());
    }
    out.line(format_args!("{field}:"))?;
    out.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_where_the_kernel_side_lets_them() {
        let bounds: Vec<_> = (0..10).map(lower).collect();
        assert_eq!(bounds, [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]);
        assert_eq!(lower(62), 1 << 31 << 1 >> 1);
        assert_eq!(lower(63), 3 << 30);
    }
}
