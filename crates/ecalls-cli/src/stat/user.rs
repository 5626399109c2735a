//! Users for `ecalls stat --by uid`: each one's use of its quotas, and the fate of its
//! subscriptions' events. The daemon keeps these counters; without a daemon there are none.

use ecalls::Ecalls;
use ecalls_abi::message::{
    QUOTA_BYTES, QUOTA_CHANNELS, QUOTA_CONNECTIONS, QUOTA_EXPIRIES, QUOTA_HANDLER, QUOTA_NAMES,
    QUOTA_RAISED, QUOTA_REQUESTS, QUOTA_SUBSCRIPTIONS, QUOTA_UP, QUOTAS, UserView,
};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::exit::{Code, Failure, Outcome};
use crate::output::{Dropped, Output, Table};

/// Each quota as `used` and `limit`, by name.
#[derive(Debug)]
struct Uses<'a>(&'a UserView);

impl Serialize for Uses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Use {
            used: u64,
            limit: Option<u64>,
        }
        let mut map = serializer.serialize_map(Some(QUOTAS))?;
        for (at, name) in QUOTA_NAMES.iter().enumerate() {
            let (used, limit) = (self.0.used[at], self.0.limit[at]);
            let limit = (limit != 0).then_some(limit);
            map.serialize_entry(&name.replace(' ', "_"), &Use { used, limit })?;
        }
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct UserRow<'a> {
    what: &'static str,
    uid: u32,
    raised: u64,
    offered: u64,
    delivered: u64,
    filtered: u64,
    late: u64,
    dropped: Dropped,
    quotas: Uses<'a>,
}

/// Quotas whose `used` is a number of refusals, not of held objects.
const RATES: [usize; 5] = [
    QUOTA_UP,
    QUOTA_RAISED,
    QUOTA_EXPIRIES,
    QUOTA_HANDLER,
    QUOTA_REQUESTS,
];

/// Prints every user that the caller may see: root sees all, other users only themselves.
pub(super) fn print(out: &mut Output, ecalls: &Ecalls) -> Outcome {
    let Some(users) = ecalls.access().users()? else {
        return Err(Failure::new(
            Code::Unsupported,
            "only the daemon counts by user, and none runs: start it (`systemctl start ecallsd`)",
        ));
    };
    if out.is_json() {
        return users.iter().try_for_each(|user| out.object(&row(user)));
    }
    let mut table = Table::new(&[
        ">UID",
        ">CONNECTIONS",
        ">CHANNELS",
        ">SUBSCRIPTIONS",
        ">KIB",
        ">OFFERED",
        ">DELIVERED",
        ">FILTERED",
        ">LATE",
        ">RAISED",
        "DROPPED",
    ]);
    for user in &users {
        let held = |quota: usize| share(user.used[quota], user.limit[quota]);
        table.row([
            user.uid.to_string(),
            held(QUOTA_CONNECTIONS),
            held(QUOTA_CHANNELS),
            held(QUOTA_SUBSCRIPTIONS),
            share(
                user.used[QUOTA_BYTES] / 1024,
                user.limit[QUOTA_BYTES] / 1024,
            ),
            user.count.offered.to_string(),
            user.count.delivered.to_string(),
            user.count.filtered.to_string(),
            user.count.late.to_string(),
            user.raised.to_string(),
            Dropped(user.count.dropped).to_string(),
        ]);
        let refused: Vec<String> = RATES
            .into_iter()
            .filter(|quota| user.used[*quota] != 0)
            .map(|quota| {
                let (name, limit) = (QUOTA_NAMES[quota], user.limit[quota]);
                format!("{} beyond {limit} {name}", user.used[quota])
            })
            .collect();
        if !refused.is_empty() {
            table.note(format!("refused: {}", refused.join(", ")));
        }
    }
    out.table(&table)
}

fn row(user: &UserView) -> UserRow<'_> {
    UserRow {
        what: "user",
        uid: user.uid,
        raised: user.raised,
        offered: user.count.offered,
        delivered: user.count.delivered,
        filtered: user.count.filtered,
        late: user.count.late,
        dropped: Dropped(user.count.dropped),
        quotas: Uses(user),
    }
}

/// `used` of `limit`.
fn share(used: u64, limit: u64) -> String {
    match limit {
        0 => used.to_string(),
        limit => format!("{used}/{limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_without_limit_has_none_in_json() {
        let mut user = UserView {
            uid: 1000,
            ..UserView::default()
        };
        user.used[QUOTA_CHANNELS] = 3;
        user.limit[QUOTA_CONNECTIONS] = 8;
        let json = serde_json::to_value(row(&user)).expect("an object");
        assert_eq!(json["quotas"]["channels"]["used"], 3);
        assert!(json["quotas"]["channels"]["limit"].is_null());
        assert_eq!(json["quotas"]["connections"]["limit"], 8);
        assert_eq!((share(3, 0), share(3, 8)), ("3".into(), "3/8".into()));
    }
}
