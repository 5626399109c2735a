//! The decisions as tables: who, with which rule, may do what.

use std::path::Path;

use ecalls_abi::handler::HANDLER_COPY_USER;
use ecalls_abi::subscription::ACTION_SIGNAL;
use zerocopy::FromZeros;

use super::*;

const ALICE: u32 = 1000;
const BOB: u32 = 1001;
const MONITOR: u32 = 200;

fn policy(text: &str) -> Policy {
    let names = Names::parse(
        "alice:x:1000:1000:::\nbob:x:1001:1001:::\n",
        "monitor:x:200:bob\n",
    );
    let config = Config::parse(text, Path::new("test"), &names).unwrap();
    Policy::new(&config, &names)
}

fn client(uid: u32) -> Client {
    Client {
        pid: 10 + uid,
        uid,
        account: uid,
        gid: uid,
    }
}

fn process(uid: u32, saved_uid: u32) -> Receiver {
    Receiver {
        pid: 7,
        uid,
        saved_uid,
    }
}

fn actions(kind: u32, handler: u32) -> Vec<Action> {
    let mut action = Action::new_zeroed();
    action.kind = kind;
    action.handler = handler;
    vec![action]
}

const TASK: Service<'_> = Service {
    name: "task",
    owner_uid: None,
};

#[test]
fn delivery_goes_only_where_kill_would() {
    let policy = policy("[[allow]]\nsee = \"all\"\nsleeping_handlers = true\n");
    let signal = actions(ACTION_SIGNAL, 0);
    // client, receiver's real and saved user, allowed
    let cases = [
        (ALICE, ALICE, ALICE, true),
        (ALICE, ALICE, 0, true), // a set-user-id program that alice started
        (ALICE, BOB, ALICE, true),
        (ALICE, BOB, BOB, false),
        (ALICE, 0, 0, false),
        (0, BOB, BOB, true),
    ];
    for (uid, real, saved, allowed) in cases {
        let decision = policy.subscribe(&client(uid), &TASK, &process(real, saved), &signal);
        assert_eq!(decision.is_ok(), allowed, "{uid} to {real}/{saved}");
    }
    // Itself, always: also after it changed its user.
    let itself = Receiver {
        pid: client(ALICE).pid,
        ..process(BOB, BOB)
    };
    assert!(
        policy
            .subscribe(&client(ALICE), &TASK, &itself, &signal)
            .is_ok()
    );
}

#[test]
fn a_user_sees_its_own_unless_a_rule_says_more() {
    let rules = [
        ("", ALICE, Scope::Own),
        ("", 0, Scope::All),
        ("[[allow]]\nsee = \"all\"\n", ALICE, Scope::All),
        (
            "[[allow]]\nusers = [\"bob\"]\nsee = \"all\"\n",
            ALICE,
            Scope::Own,
        ),
        (
            "[[allow]]\nusers = [\"alice\"]\nsee = \"all\"\n",
            ALICE,
            Scope::All,
        ),
        (
            "[[allow]]\ngroups = [\"monitor\"]\nsee = \"all\"\n",
            BOB,
            Scope::All,
        ),
        (
            "[[allow]]\ngroups = [\"monitor\"]\nsee = \"all\"\n",
            ALICE,
            Scope::Own,
        ),
        (
            "[[allow]]\nservices = [\"task\"]\nsee = \"all\"\n",
            ALICE,
            Scope::All,
        ),
        (
            "[[allow]]\nservices = [\"sched\"]\nsee = \"all\"\n",
            ALICE,
            Scope::Own,
        ),
        (
            "[[allow]]\nsee = \"all\"\n[[allow]]\nsee = \"own\"\n",
            ALICE,
            Scope::All,
        ),
    ];
    for (text, uid, scope) in rules {
        let own = process(uid, uid);
        let decision = policy(text).subscribe(&client(uid), &TASK, &own, &[]);
        assert_eq!(decision, Ok(scope), "{text:?} for {uid}");
    }
    // By the group that the process runs with, too.
    let policy = policy("[[allow]]\ngroups = [\"monitor\"]\nsee = \"all\"\n");
    let member = Client {
        gid: MONITOR,
        ..client(ALICE)
    };
    assert_eq!(policy.rights(&member, "task").see, See::All);
}

#[test]
fn application_services_belong_to_their_user() {
    let of_bob = Service {
        name: "weather",
        owner_uid: Some(BOB),
    };
    let rule = "[[allow]]\nusers = [\"alice\"]\nservices = [\"weather\"]\n\
                application_services = true\n";
    let subscribe = |text: &str, uid| {
        let own = process(uid, uid);
        policy(text).subscribe(&client(uid), &of_bob, &own, &[])
    };
    assert_eq!(subscribe("", BOB), Ok(Scope::Own));
    assert!(subscribe("", ALICE).is_err());
    assert_eq!(subscribe(rule, ALICE), Ok(Scope::All));
    assert_eq!(subscribe("", 0), Ok(Scope::All));
    // Seeing all events of the kernel side's services is not yet seeing other users' services.
    assert!(subscribe("[[allow]]\nsee = \"all\"\n", ALICE).is_err());
    let other = rule.replace("weather", "stocks");
    assert!(subscribe(&other, ALICE).is_err());
}

#[test]
fn memory_is_read_only_by_rule_and_only_of_the_same_user() {
    let granted = "[[allow]]\nsleeping_handlers = true\n";
    let copy = actions(ACTION_THREAD, HANDLER_COPY_USER);
    let cases = [
        ("", ALICE, process(ALICE, ALICE), false),
        (granted, ALICE, process(ALICE, ALICE), true),
        (granted, ALICE, process(ALICE, 0), false),
        (granted, ALICE, process(BOB, ALICE), false),
        ("", 0, process(BOB, BOB), true),
    ];
    for (text, uid, receiver, allowed) in cases {
        let decision = policy(text).subscribe(&client(uid), &TASK, &receiver, &copy);
        assert_eq!(decision.is_ok(), allowed, "{text:?} {uid} {receiver:?}");
    }
    // The action's kind does not matter: the kernel side decides by the handler's number.
    let lying = actions(ACTION_HANDLER, HANDLER_COPY_USER);
    let own = process(ALICE, ALICE);
    assert!(
        policy("")
            .subscribe(&client(ALICE), &TASK, &own, &lying)
            .is_err()
    );
}

#[test]
fn events_go_to_other_hosts_of_the_channels_that_a_rule_names() {
    let rule = "[[allow]]\nusers = [\"alice\"]\nservices = [\"load\"]\npublish = true\n";
    let other = "[[allow]]\nservices = [\"load\"]\napplication_services = true\n";
    let cases = [
        ("", ALICE, "load", false),
        ("", 0, "load", true),
        (rule, ALICE, "load", true),
        (rule, ALICE, "loads", false),
        (rule, BOB, "load", false),
        (other, ALICE, "load", false),
        ("[[allow]]\npublish = true\n", BOB, "anything", true),
    ];
    for (text, uid, channel, allowed) in cases {
        let decision = policy(text).publish(&client(uid), text_id(channel));
        assert_eq!(decision.is_ok(), allowed, "{text:?} {uid} {channel}");
    }
}

#[test]
fn parameters_and_services_need_a_rule() {
    let with = policy("[[allow]]\nadd_services = true\nset_parameters = true\n");
    let without = policy("");
    assert!(without.add_service(&client(ALICE)).is_err());
    assert!(with.add_service(&client(ALICE)).is_ok());
    assert!(without.add_service(&client(0)).is_ok());
    assert!(without.set_parameter(&client(ALICE), &TASK).is_err());
    assert!(with.set_parameter(&client(ALICE), &TASK).is_ok());
    let own = Service {
        name: "weather",
        owner_uid: Some(ALICE),
    };
    assert!(without.set_parameter(&client(ALICE), &own).is_ok());
}

#[test]
fn limits_of_the_last_rule_hold_and_the_others_stay() {
    let text = "[limits]\nchannels = 10\n\
                [[allow]]\nlimits = { channels = 20, timers = 5 }\n\
                [[allow]]\nusers = [\"alice\"]\nlimits = { channels = 30 }\n";
    let of = |uid| policy(text).limits(&client(uid));
    assert_eq!((of(ALICE).channels.get(), of(ALICE).timers.get()), (30, 5));
    assert_eq!((of(BOB).channels.get(), of(BOB).timers.get()), (20, 5));
    assert_eq!(of(BOB).services, Limits::default().services);
}

#[test]
fn application_service_is_its_users_to_look_at_unless_a_rule_says_more() {
    let of = |owner_uid| Service {
        name: "game",
        owner_uid,
    };
    let may = |text: &str, uid, owner| policy(text).may_look_at_service(&client(uid), &of(owner));
    assert!(may("", ALICE, Some(ALICE)) && may("", 0, Some(BOB)) && may("", ALICE, None));
    assert!(!may("", ALICE, Some(BOB)));
    let rule = |name: &str, right| format!("[[allow]]\nservices = [\"{name}\"]\n{right}\n");
    for right in ["see = \"all\"", "application_services = true"] {
        assert!(may(&rule("game", right), ALICE, Some(BOB)));
        assert!(!may(&rule("other", right), ALICE, Some(BOB)));
    }
}

#[test]
fn looking_is_for_the_own_user_unless_a_rule_says_more() {
    let all = policy("[[allow]]\nservices = [\"task\"]\nsee = \"all\"\n");
    assert!(all.may_look(&client(ALICE), BOB, "task"));
    assert!(!all.may_look(&client(ALICE), BOB, "sched"));
    assert!(all.may_look(&client(ALICE), ALICE, "sched"));
    assert!(policy("").may_look(&client(0), BOB, "sched"));
}

#[test]
fn limits_of_a_subordinate_id_are_its_users_and_its_rights_are_its_own() {
    let policy = policy(
        "[[allow]]\nusers = [\"alice\"]\nsee = \"all\"\nlimits = { channels = 3 }\n\
         [[allow]]\ngroups = [\"monitor\"]\nlimits = { channels = 7 }\n",
    );
    let contained = Client {
        account: ALICE,
        gid: MONITOR,
        ..client(100_000)
    };
    assert_eq!(policy.limits(&contained).channels.get(), 3);
    assert_eq!(policy.rights(&contained, "task").see, See::Own);
}
