//! The daemon's configuration.
//!
//! Always: a text that is accepted prints as a text that is accepted and prints the same; one that
//! is refused is refused with a place inside it; and no rule gives a stranger rights that the rule
//! does not name.

use std::path::Path;

use ecallsd::config::{Config, Error, Names};
use ecallsd::policy::{Client, Policy};

const PASSWD: &str = "root:x:0:0:::\nalice:x:1000:1000:::\nbob:x:1001:100:::\n";
const GROUP: &str = "root:x:0:\nusers:x:100:\nmonitor:x:200:alice\n";

pub(crate) fn run(bytes: &[u8]) {
    let text = crate::text(bytes);
    let names = Names::parse(PASSWD, GROUP);
    let path = Path::new("ecallsd.toml");
    match Config::parse(text, path, &names) {
        Ok(config) => {
            let printed = config.to_toml();
            let again = Config::parse(&printed, path, &names);
            let again = again.unwrap_or_else(|error| panic!("{printed}\n{error}"));
            assert_eq!(again.to_toml(), printed);
            check_policy(&config, &names);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            if let Error::Text { line, column, .. } = error {
                let lines = text.matches('\n').count() + 1;
                assert!((1..=lines).contains(&line) && column >= 1);
            }
        }
    }
    // The two files that name users are the system's, but broken ones exist.
    let names = Names::parse(text, text);
    let _ = (names.members(0), names.of_user(0));
}

fn check_policy(config: &Config, names: &Names) {
    let policy = Policy::new(config, names);
    let nobody = Client {
        pid: 5,
        uid: 4_000_000_000,
        account: 4_000_000_000,
        gid: 4_000_000_000,
    };
    let rights = policy.rights(&nobody, "task");
    let for_everybody = config.allow.iter().any(|rule| {
        let numbers = format!("{:?} {:?}", rule.users, rule.groups);
        (rule.users.is_empty() && rule.groups.is_empty()) || numbers.contains("4000000000")
    });
    if !for_everybody {
        assert_eq!(rights, ecallsd::policy::Rights::default());
        assert_eq!(policy.limits(&nobody), config.limits);
    }
}
