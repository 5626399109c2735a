//! The player of `examples/frames.rs`, as cargo has built it: it shows or drops each frame. Under
//! our scheduler it runs in the test machine, with the command's tests.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Beside the folder of this test; cargo builds it unless it is told to build this test alone.
fn player() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this binary");
    let player = test.parent()?.parent()?.join("examples/frames");
    player.exists().then_some(player)
}

#[test]
fn player_shows_or_drops_each_frame_without_a_scheduler() {
    let Some(player) = player() else {
        assert!(std::env::var_os("CI").is_none(), "cargo has not built it");
        eprintln!("skipped: the example is not built");
        return;
    };
    let mut command = Command::new(player);
    command.args(["1", "20", "5"]).env_remove("ECALLS_GROUP");
    let output = limit::output(&mut command, LIMIT);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("timing: plain"), "{said}");
    let words: Vec<&str> = said.split_whitespace().collect();
    let before = |word: &str| -> u64 {
        let at = words
            .iter()
            .position(|known| known.trim_end_matches(',') == word);
        words[at.expect(word) - 1].parse().expect("a number")
    };
    assert_eq!(before("shown") + before("dropped"), 20, "{said}");
}
