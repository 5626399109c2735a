//! The events of the measurement: they make every part of each handler run.

fn words(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

/// 16 resources of 8 attributes, some of which exceed their thresholds.
pub(super) fn paper() -> Vec<u8> {
    let metric = |at: i32| {
        let values = (0..8).map(move |of| of * 7 % 5 + at);
        let thresholds = (0..8).map(move |of| of + at);
        [8].into_iter().chain(values).chain(thresholds)
    };
    words((0..16).flat_map(metric))
}

/// A packet that passes the filter.
pub(super) fn filter() -> Vec<u8> {
    let mut packet = 5000_u64.to_le_bytes().to_vec();
    packet.extend(443_u16.to_le_bytes());
    packet.extend(b"lighttpd\0\0\0\0\0\0\0\0");
    packet
}

/// 16 loads, half of which are above the limit.
pub(super) fn array() -> Vec<u8> {
    words((0..16).map(|at| at * 7 % 16).chain([7]))
}

/// 500 loads.
pub(super) fn long_array() -> Vec<u8> {
    words((0..500).map(|at| at * 7 % 16).chain([7]))
}

/// A number of bytes.
pub(super) fn counter() -> Vec<u8> {
    words([17])
}
