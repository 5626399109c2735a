//! Which configurations are accepted and which are refused, and that a refusal names the place.

use std::path::Path;

use super::*;

fn names() -> Names {
    Names::parse("alice:x:1000:1000:::\n", "monitor:x:200:alice\n")
}

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("test.toml"), &names())
}

/// The message for `text`, without the source line.
fn refusal(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
    message.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn what_is_printed_can_be_read_again() {
    let text = r#"
        [socket]
        path = "/run/x/socket"
        mode = "0660"
        group = "monitor"
        [limits]
        bytes = "3M"
        handler_time = "1500us/s"
        [metrics]
        listen = "[::1]:9633"
        [[allow]]
        users = ["alice", 77]
        see = "all"
        limits = { channels = 5 }
    "#;
    let config = parse(text).unwrap();
    let printed = config.to_toml();
    let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(again.to_toml(), printed);
    assert_eq!(again.limits, config.limits);
    assert_eq!(again.socket.mode, Mode(0o660));
    assert_eq!(again.limits.handler_time, HandlerTime(1_500_000));
}

#[test]
fn the_shipped_example_says_the_defaults() {
    let text = include_str!("../../../../etc/ecallsd.toml");
    let set: String = text
        .lines()
        .map(|line| line.strip_prefix("#:").unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(parse(text).unwrap(), Config::default());
    assert_eq!(parse(&set).unwrap(), Config::default());
    // Every setting that has a default is in the file.
    let key = |line: &str| line.split_once(" =").map(|(key, _)| key.trim().to_owned());
    for name in Config::default().to_toml().lines().filter_map(key) {
        let shown = set.lines().filter_map(key).any(|other| other == name);
        assert!(shown, "etc/ecallsd.toml does not show {name}");
    }
}

#[test]
fn mistakes_are_refused_with_their_place_and_what_is_allowed() {
    let cases = [
        (
            "[limits]\nchannels = 1025\n",
            "test.toml:2:12: invalid value: integer `1025`, expected a whole number from 0 to 1024",
        ),
        (
            "[limits]\nchannels = -1\n",
            "test.toml:2:12: invalid value: integer `-1`, expected a whole number from 0 to 1024",
        ),
        (
            "[limits]\nchannels = \"many\"\n",
            "test.toml:2:12: invalid type: string \"many\", expected a whole number from 0 to 1024",
        ),
        (
            "[log]\nlevel = \"loud\"\n",
            "test.toml:2:9: unknown variant `loud`, expected one of `error`, `warn`, `info`, \
             `debug`, `trace`",
        ),
        (
            "[socket]\nmode = \"666\"\n",
            "test.toml:2:8: invalid value: string \"666\", expected four octal digits, e.g. \
             \"0660\" for its owner and group",
        ),
        (
            "[[allow]]\nusers = [\"alice\", \"eve\"]\n",
            "test.toml:2:19: there is no user \"eve\" in /etc/passwd: give its number if it is \
             known elsewhere",
        ),
        (
            "[[allow]]\nservices = [\"socket\"]\nlimits = { channels = 1 }\n",
            "test.toml:3:10: limits are a user's, not a service's: leave out `services`, or make \
             two rules",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected);
    }
    assert!(refusal("[limit]\n").starts_with("test.toml:1:2: unknown field `limit`, expected"));
    assert!(refusal("[limits\n").starts_with("test.toml:1:"));
}

#[test]
fn counters_are_never_served_to_the_network() {
    for listen in [
        "0.0.0.0:1",
        "[::]:9633",
        "192.168.0.1:9633",
        "9633",
        "run/x",
    ] {
        let text = format!("[metrics]\nlisten = \"{listen}\"\n");
        assert!(refusal(&text).contains("a loopback address"), "{listen}");
    }
    for listen in ["off", "/run/ecalls/metrics", "127.0.0.1:9633", "[::1]:9633"] {
        let text = format!("[metrics]\nlisten = \"{listen}\"\n");
        assert_eq!(parse(&text).unwrap().metrics.listen.to_string(), listen);
    }
}

#[test]
fn an_error_shows_the_line_and_marks_the_place() {
    let message = parse("# ä\n[limits]\n  channels = 9999\n").expect_err("too many");
    let lines: Vec<_> = message
        .to_string()
        .lines()
        .skip(1)
        .map(str::to_owned)
        .collect();
    assert_eq!(
        lines,
        ["    3 |   channels = 9999", "      |              ^^^^"]
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]a-z0-9=\"{}\\n., ä#]{0,80}") {
        if let Err(error) = parse(&text) {
            let _ = error.to_string();
        }
    }

    #[test]
    fn sizes_survive_printing(bytes in 262_144u64..(1 << 34)) {
        let limits = Limits { bytes: Bytes(bytes), ..Limits::default() };
        let config = Config { limits, ..Config::default() };
        proptest::prop_assert_eq!(parse(&config.to_toml()).unwrap(), config);
    }
}
