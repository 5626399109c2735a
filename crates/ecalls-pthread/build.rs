//! Compiles start.c, where the library exists: with glibc on x86-64.

fn main() {
    println!("cargo:rerun-if-changed=src/start.c");
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ARCH") == "x86_64" && of("CARGO_CFG_TARGET_ENV") == "gnu" {
        cc::Build::new()
            .file("src/start.c")
            .warnings_into_errors(true)
            .compile("start");
    }
}
