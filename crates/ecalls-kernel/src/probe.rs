//! What this kernel offers.

/// The first thing that the core cannot do without and this kernel lacks: its name, and what brings
/// it.
pub fn missing_requirement() -> Option<(&'static str, &'static str)> {
    if std::fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
        return Some((
            "type information (BTF)",
            "a kernel with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    None
}
