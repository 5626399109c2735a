//! Builds a shared library of this workspace for tests that use it as programs do. Cargo does not
//! build a cdylib for its own tests.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Set: the tests of all packages were built together, as tools/test does.
const WHOLE: &str = "ECALLS_TEST_WORKSPACE";

/// How long cargo may take, which waits for whoever else builds here.
const LIMIT: Duration = Duration::from_secs(900);

/// The path of the library `name` of the package in `package` (its `CARGO_MANIFEST_DIR`), just
/// built as the caller was: with the profile of tests, and beside the tests of the same packages,
/// so that each dependency has the features that it has for them. With others all of them are
/// compiled once more.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn build(package: &str, name: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--lib", "--tests", "--manifest-path"]);
    build.arg(format!("{package}/Cargo.toml"));
    build.arg("--message-format=json");
    if std::env::var_os(WHOLE).is_some() {
        build.arg("--workspace");
    }
    let profile = if cfg!(debug_assertions) {
        "test"
    } else {
        "release"
    };
    build.args(["--profile", profile]);
    let output = super::output(&mut build, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let messages = String::from_utf8(output.stdout).expect("JSON");
    // "filenames":["/.../libecalls.so","/.../libecalls.a"]
    let end = format!("/{name}");
    let mut texts = messages.split('"');
    let path = texts.find(|text| text.ends_with(&end));
    PathBuf::from(path.expect("the library is among what was built"))
}
