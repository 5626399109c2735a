//! Durations as people write them: `250us`, `5ms`, `10s`, `1m30s`.
