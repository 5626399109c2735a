//! What a user's subscription may do to a process is decided when it does it: signals as kill(2)
//! would, memory as far as users decide about it; and nothing of a former program's for one that
//! has more rights. Needs root.

#![allow(unsafe_code, reason = "the harness' threads of other users")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ecalls_abi::channel::{DropReason, STATE_ACTIVE, STATE_DEAD};
use ecalls_abi::handler::{HANDLER_COPY_USER, HANDLER_COUNT};
use ecalls_abi::subscription::{ACTION_SIGNAL, ACTION_THREAD, Action};
use ecalls_kernel::owner::Owner;
use ecalls_kernel::subscription::{HostedSubscription, Request};
use harness::{PATIENCE, Stage, handler, request, stage, wait_until};
use limit::Running;
use zerocopy::FromZeros;

const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;
const SIGNAL: u32 = 40;

/// A process of Bert's.
fn start(command: &mut Command) -> Running {
    Running::start(command.uid(BERT).gid(BERT).stdin(Stdio::piped()))
}

fn subscribe(stage: &Stage, owner: &Owner, receiver: u32, action: Action) -> HostedSubscription {
    let wanted = Request {
        receiver,
        ..request(vec![action])
    };
    HostedSubscription::install(Arc::clone(&stage.core), owner, &wanted).expect("a subscription")
}

fn signal() -> Action {
    let mut action = Action::new_zeroed();
    action.kind = ACTION_SIGNAL;
    action.signal = SIGNAL;
    action
}

#[test]
fn signal_goes_only_to_whom_its_owner_may_signal() {
    let Some(stage) = stage() else { return };
    for (uid, allowed) in [(ANNA, false), (BERT, true), (0, true)] {
        let mut bert = start(Command::new("sleep").arg("60"));
        let owner = stage.owner(uid, 0);
        let subscription = subscribe(&stage, &owner, bert.id(), signal());
        stage.raise_as(0, 1);
        stage.wait_for(&subscription, 1);
        let ended = match allowed {
            true => Some(bert.wait(PATIENCE)),
            false => {
                std::thread::sleep(Duration::from_millis(50));
                bert.ended()
            }
        };
        let count = stage.count(&subscription);
        let gone = count.dropped(DropReason::TargetGone);
        assert_eq!(
            (count.delivered, gone),
            (u64::from(allowed), u64::from(!allowed)),
            "{uid}"
        );
        assert_eq!(
            ended.and_then(|status| status.signal()),
            allowed.then_some(40),
            "{uid}"
        );
    }
}

#[test]
fn memory_is_read_only_for_its_own_user_and_for_root() {
    let Some(stage) = stage() else { return };
    let secret = Box::new([7u64; 8]);
    let mut copy = handler(HANDLER_COPY_USER);
    copy.kind = ACTION_THREAD;
    copy.argument = [secret.as_ptr().addr() as u64, 0, 8];
    for (uid, allowed) in [(ANNA, false), (0, true)] {
        // This process is root's.
        let own = subscribe(&stage, &stage.owner(uid, 0), std::process::id(), copy);
        stage.raise_as(0, 1);
        stage.wait_for(&own, 1);
        let count = stage.count(&own);
        let gone = count.dropped(DropReason::TargetGone);
        assert_eq!(
            (count.delivered, gone),
            (u64::from(allowed), u64::from(!allowed)),
            "{uid}"
        );
    }
    let bert = start(Command::new("sleep").arg("60"));
    let other = subscribe(&stage, &stage.owner(BERT, 0), bert.id(), copy);
    stage.raise_as(0, 1);
    stage.wait_for(&other, 1);
    let count = stage.count(&other);
    assert_eq!(
        count.dropped(DropReason::NoHandler),
        1,
        "a user's other process"
    );
}

fn state(stage: &Stage, subscription: &HostedSubscription) -> u32 {
    let all = stage.core.subscriptions().expect("the table");
    let own = all.iter().find(|one| one.row.id == subscription.id().raw());
    own.expect("it is there").row.state
}

#[test]
fn program_with_more_rights_receives_only_what_root_made_for_it() {
    let Some(stage) = stage() else { return };
    let folder = Path::new("/tmp").join(format!("ecalls-permission-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    for (mode, of_bert) in [(0o755, STATE_ACTIVE), (0o4755, STATE_DEAD)] {
        let program = folder.join(format!("sleep-{mode:o}"));
        std::fs::copy("/bin/sleep", &program).expect("a copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("mode");
        let script = format!("read line; exec {} 60", program.display());
        let mut bert = start(Command::new("sh").args(["-c", &script]));
        let make = |uid| {
            subscribe(
                &stage,
                &stage.owner(uid, 0),
                bert.id(),
                handler(HANDLER_COUNT),
            )
        };
        let (own, root) = (make(BERT), make(0));
        assert_eq!(
            (state(&stage, &own), state(&stage, &root)),
            (STATE_ACTIVE, STATE_ACTIVE)
        );
        drop(bert.input());
        let name = format!("/proc/{}/comm", bert.id());
        let is_sleep =
            || std::fs::read_to_string(&name).is_ok_and(|name| name.starts_with("sleep"));
        wait_until("it is the other program", is_sleep);
        if of_bert == STATE_DEAD {
            wait_until("it receives no more", || state(&stage, &own) == STATE_DEAD);
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(
            (state(&stage, &own), state(&stage, &root)),
            (of_bert, STATE_ACTIVE),
            "{mode:o}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("it was ours");
}
