//! Which hosts may do what on which channels, by the names of their certificates: `[[access]]` of
//! the configuration, as rules for Zenoh's access control.
//!
//! Each relay judges what it is told, by the certificate of the host from which it comes. Nothing
//! is allowed that no entry allows; what this relay tells others, they judge. So a right is one to
//! be believed or listened to:
//!
//! | right | what is accepted from the host |
//! |---|---|
//! | `create` | its answers to what the channel is |
//! | `publish` | its frames of a reliable channel |
//! | `subscribe` | that it has the channel open, and so gets its events |
//!
//! Whoever has one of them may ask for the channels of the cluster and their hosts. An entry with
//! `ids` says which hosts those with its certificates are: as no other host are they believed to
//! have a channel open, to send a frame, or to want one.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ecalls_abi::relay::is_name;
use ecalls_abi::wire;

/// Entries of a configuration, and names in one of them.
const ENTRIES_MAX: usize = 256;

/// The longest common name of a certificate (RFC 5280), bytes.
const HOST_MAX: usize = 64;

/// `[[access]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Common names of certificates; `*`: of all that the authority has signed.
    pub hosts: Vec<String>,
    /// Which hosts they are, as people write hosts; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// `CLUSTER/CHANNEL`, each a name or `*`.
    pub channels: Vec<String>,
    pub may: Vec<Right>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    Create,
    Publish,
    Subscribe,
}

impl Access {
    /// # Errors
    /// What is wrong with an entry.
    pub fn check(entries: &[Access], has_tls: bool) -> Result<(), String> {
        if entries.is_empty() {
            return Ok(());
        }
        if !has_tls {
            return Err(
                "[[access]] goes by the names of certificates, so it needs [tls]".to_owned(),
            );
        }
        if entries.len() > ENTRIES_MAX {
            return Err(format!("there are at most {ENTRIES_MAX} of [[access]]"));
        }
        entries.iter().try_for_each(Access::check_one)
    }

    fn check_one(&self) -> Result<(), String> {
        let lengths = [self.hosts.len(), self.channels.len(), self.may.len()];
        if lengths.iter().any(|&n| n == 0 || n > ENTRIES_MAX) {
            return Err(format!(
                "[[access]] names hosts, channels, and what they may: 1 to {ENTRIES_MAX} of each"
            ));
        }
        let is_host = |host: &String| {
            !host.is_empty() && host.len() <= HOST_MAX && !host.contains(char::is_control)
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            return Err(format!(
                "{host:?} of [[access]] is no common name of a certificate"
            ));
        }
        let is_id = |id: &String| wire::Host::parse(id).is_some();
        if self.ids.len() > ENTRIES_MAX {
            return Err(format!("an [[access]] has at most {ENTRIES_MAX} ids"));
        }
        if let Some(id) = self.ids.iter().find(|id| !is_id(id)) {
            return Err(format!(
                "{id:?} of [[access]] is no host: say \"0000:02-00-00-00-00-01\", as ecalls \
                 channel list does"
            ));
        }
        match self.channels.iter().find(|text| parts(text).is_none()) {
            Some(text) => Err(format!(
                "{text:?} of [[access]] is no channel: say \"lab/load\", \"lab/*\" or \"*/*\""
            )),
            None => Ok(()),
        }
    }

    /// Zenoh's configuration of its access control; `None`: every host may do everything.
    pub fn settings(entries: &[Access]) -> Option<Value> {
        if entries.is_empty() {
            return None;
        }
        let all = json!([
            "put",
            "delete",
            "declare_subscriber",
            "query",
            "declare_queryable",
            "reply",
            "liveliness_token",
            "declare_liveliness_subscriber",
            "liveliness_query"
        ]);
        let mut rules = vec![rule("told", "egress", &["**".to_owned()], &all)];
        let mut subjects = vec![json!({ "id": "anyone" })];
        let mut policies = vec![json!({ "rules": ["told"], "subjects": ["anyone"] })];
        for (number, entry) in entries.iter().enumerate() {
            let own = entry.rules(number);
            let ids: Vec<_> = own.iter().map(|rule| rule["id"].clone()).collect();
            let mut subject = json!({ "id": format!("hosts {number}") });
            if !entry.hosts.iter().any(|host| host == "*") {
                subject["cert_common_names"] = json!(entry.hosts);
            }
            policies.push(json!({ "rules": ids, "subjects": [subject["id"]] }));
            subjects.push(subject);
            rules.extend(own);
        }
        Some(json!({
            "enabled": true,
            "default_permission": "deny",
            "rules": rules,
            "subjects": subjects,
            "policies": policies,
        }))
    }

    fn rules(&self, number: usize) -> Vec<Value> {
        let keys = |of: &dyn Fn(&str, &str) -> String| -> Vec<String> {
            let all = self.channels.iter().filter_map(|text| parts(text));
            all.map(|(cluster, channel)| of(cluster, channel)).collect()
        };
        let looks = json!(["query", "declare_liveliness_subscriber", "liveliness_query"]);
        let looks_at = keys(&|cluster, _| format!("ecalls/{cluster}/ch/**"));
        let mut rules = vec![rule(
            &format!("look {number}"),
            "ingress",
            &looks_at,
            &looks,
        )];
        let ids = self.ids.iter().filter_map(|id| wire::Host::parse(id));
        let mut ids: Vec<String> = ids.map(|id| format!("{:016x}", id.0)).collect();
        if ids.is_empty() {
            ids.push("*".to_owned());
        }
        let each = |of: &dyn Fn(&str) -> String| -> Vec<String> {
            let ends = ids.iter().map(|id| of(id));
            ends.flat_map(|end| keys(&|cluster, channel| base(cluster, channel) + &end))
                .collect()
        };
        for right in &self.may {
            let mut add = |name: &str, at: &[String], messages: Value| {
                rules.push(rule(&format!("{name} {number}"), "ingress", at, &messages));
            };
            match right {
                Right::Create => {
                    let info = keys(&|cluster, channel| base(cluster, channel) + "info");
                    add("create", &info, json!(["declare_queryable", "reply"]));
                }
                Right::Publish => {
                    let from = each(&|id| format!("to/*/{id}"));
                    add("publish", &from, json!(["put"]));
                }
                Right::Subscribe => {
                    let tokens = each(&|id| format!("host/{id}/**"));
                    add("enter", &tokens, json!(["liveliness_token"]));
                    let frames = each(&|id| format!("to/{id}/*"));
                    add("subscribe", &frames, json!(["declare_subscriber"]));
                }
            }
        }
        rules
    }
}

fn base(cluster: &str, channel: &str) -> String {
    format!("ecalls/{cluster}/ch/{channel}/")
}

fn rule(id: &str, flow: &str, keys: &[String], messages: &Value) -> Value {
    json!({
        "id": id,
        "flows": [flow],
        "permission": "allow",
        "key_exprs": keys,
        "messages": messages,
    })
}

/// Cluster and channel of an entry.
fn parts(text: &str) -> Option<(&str, &str)> {
    let fits = |part: &str| part == "*" || is_name(part);
    text.split_once('/')
        .filter(|(cluster, channel)| fits(cluster) && fits(channel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_keys_of_the_channels_only() {
        let entry = Access {
            hosts: vec!["web".to_owned()],
            ids: Vec::new(),
            channels: vec!["lab/load".to_owned(), "lab/*".to_owned()],
            may: vec![Right::Publish],
        };
        let settings = Access::settings(std::slice::from_ref(&entry)).expect("some");
        assert_eq!(settings["rules"][1]["messages"][0], "query");
        let keys = json!(["ecalls/lab/ch/load/to/*/*", "ecalls/lab/ch/*/to/*/*"]);
        assert_eq!(settings["rules"][2]["key_exprs"], keys);
        assert_eq!(settings["subjects"][1]["cert_common_names"], json!(["web"]));
        assert_eq!(settings["rules"].as_array().map(Vec::len), Some(3));
        assert_eq!(Access::settings(&[]), None);
        let bound = Access {
            ids: vec!["4f01:02-00-00-00-00-01".to_owned()],
            may: vec![Right::Subscribe],
            ..entry
        };
        let settings = Access::settings(&[bound]).expect("some");
        let host = "4f01020000000001";
        for (rule, end) in [(2, format!("host/{host}/**")), (3, format!("to/{host}/*"))] {
            let keys = ["load", "*"].map(|channel| format!("ecalls/lab/ch/{channel}/{end}"));
            assert_eq!(settings["rules"][rule]["key_exprs"], json!(keys));
        }
    }
}
