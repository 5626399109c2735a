//! Compiles the shim, and through it `bpf/lib`, for the host: once with the kernel's queue size and
//! once with a small one. Undefined behaviour traps.

use std::path::Path;

fn main() {
    let root = Path::new("../..");
    for file in ["shim.c", "check.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    for folder in ["abi", "bpf/lib"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    for (name, entries) in [("algorithms_small", "16u"), ("algorithms_full", "1024u")] {
        cc::Build::new()
            .file("shim.c")
            .include(root)
            .include(root.join("bpf/lib"))
            .define("TABLE", name)
            .define("HEAP_ENTRIES", entries)
            .std("gnu11")
            .opt_level(2)
            .extra_warnings(true)
            .warnings_into_errors(true)
            .flag("-fsanitize=undefined")
            .flag("-fsanitize-undefined-trap-on-error")
            .compile(name);
    }
}
