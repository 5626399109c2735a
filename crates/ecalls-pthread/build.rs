//! Compiles what is in C, where the library exists: with glibc on x86-64.

fn main() {
    let sources = ["src/start.c", "src/exec.c"];
    for source in sources {
        println!("cargo:rerun-if-changed={source}");
    }
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ARCH") == "x86_64" && of("CARGO_CFG_TARGET_ENV") == "gnu" {
        cc::Build::new()
            .files(sources)
            .warnings_into_errors(true)
            .compile("pthread_c");
    }
}
