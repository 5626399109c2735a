//! Builds the library for tests that use it as C programs do. Cargo does not build a cdylib for its
//! own tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Set: the tests of all packages were built together, as tools/test does.
const WHOLE: &str = "ECALLS_TEST_WORKSPACE";

/// How long cargo may take, which waits for whoever else builds here.
const LIMIT: Duration = Duration::from_secs(900);

/// The folder with libecalls.so and libecalls.a, just built as this test was: with the profile of
/// tests, and beside the tests of the same packages, so that each dependency has the features that
/// it has for them. With others all of them are compiled once more.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--offline", "--lib", "--tests", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
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
        let output = limit::output(&mut build, LIMIT);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let messages = String::from_utf8(output.stdout).expect("JSON");
        // "filenames":["/…/libecalls.so","/…/libecalls.a"]
        let path = messages
            .split('"')
            .find(|text| text.ends_with("/libecalls.so"))
            .expect("the shared library is among what was built");
        Path::new(path).parent().expect("a folder").to_owned()
    })
}
