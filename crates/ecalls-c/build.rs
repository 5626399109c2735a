//! Gives libecalls.so its name for the dynamic linker. The number goes up when a program that was
//! linked with the library before would no longer run with it.

/// What programs ask the dynamic linker for.
const SONAME: &str = "libecalls.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
}
