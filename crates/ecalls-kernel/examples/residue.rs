//! What of a core is in the kernel right now.
//!
//! Shows: that a core is gone without a trace when its last user has ended.
//! Needs: root (anybody else sees nothing).
//! Run: `cargo run -p ecalls-kernel --example residue`
//! Expect: a line with id and name for each program, or else each map, of a core; none: no core.

#![forbid(unsafe_code)]

fn main() {
    for (id, name) in ecalls_kernel::residue() {
        println!("{id} {name}");
    }
}
