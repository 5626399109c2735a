//! Compiles start.c, and gives libecalls.so its name for the dynamic linker. The number goes up
//! when a program that was linked with the library before would no longer run with it.

/// What programs ask the dynamic linker for.
const SONAME: &str = "libecalls.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/start.c");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    cc::Build::new()
        .file("src/start.c")
        .warnings_into_errors(true)
        .compile("start");
}
