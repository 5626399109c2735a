//! The rights of clients: pure decisions, from the configuration's rules and the kernel's facts
//! about both sides. This module queries and changes nothing.
//!
//! By default a user has access to its own objects only: it sees events of its own processes and
//! sockets, delivers to its own processes, and subscribes to its own application services. Rules
//! grant more. Signals and events for another process are sent only where the kernel itself would
//! permit the client to send a signal (kill(2)); no rule changes that.
//!
//! Root has every right, as it has without the daemon.

use std::collections::HashSet;

use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::handler::HANDLER_SLEEPING;
use ecalls_abi::subscription::{ACTION_HANDLER, ACTION_THREAD, Action};
use ecalls_abi::wire::text_id;

use crate::config::{Allow, Config, Limits, Names, See};

/// The kernel's facts about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its process.
    pub pid: u32,
    /// Its effective user when it connected.
    pub uid: u32,
    /// The user that is charged for it ([`crate::subordinate`]); usually the same.
    pub account: u32,
    /// Its effective group when it connected.
    pub gid: u32,
}

/// The kernel's facts about a process that is to receive events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub pid: u32,
    /// Its real user.
    pub uid: u32,
    /// Its saved user.
    pub saved_uid: u32,
}

/// The core's facts about a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service<'a> {
    pub name: &'a str,
    /// User of the process that registered it; `None`: a built-in service.
    pub owner_uid: Option<u32>,
}

/// The events that a subscription sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of processes and sockets of its user.
    Own,
    /// All.
    All,
}

/// A refusal: the action, and the right that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub action: &'static str,
    pub needs: &'static str,
}

/// The rights that a rule grants.
#[derive(Clone, Debug)]
struct Rule {
    uids: HashSet<u32>,
    gids: HashSet<u32>,
    everybody: bool,
    allow: Allow,
}

#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    limits: Limits,
}

/// The rights of one client with one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whose events it sees.
    pub see: See,
    /// Whether it may use application services of other users.
    pub application_services: bool,
    /// Whether it may use handlers that read its receivers' memory.
    pub sleeping_handlers: bool,
    /// Whether it may load services into the kernel.
    pub add_services: bool,
    /// Whether it may set parameters of services.
    pub set_parameters: bool,
}

const EVERYTHING: Rights = Rights {
    see: See::All,
    application_services: true,
    sleeping_handlers: true,
    add_services: true,
    set_parameters: true,
};

impl Policy {
    /// The rules of a configuration, whose names were checked before.
    pub fn new(config: &Config, names: &Names) -> Policy {
        let rules = config.allow.iter().map(|allow| {
            let users = allow
                .users
                .iter()
                .filter_map(|who| names.user(who.as_ref()));
            let gids: HashSet<u32> = allow
                .groups
                .iter()
                .filter_map(|who| names.group(who.as_ref()))
                .collect();
            let members = gids.iter().flat_map(|gid| names.members(*gid));
            Rule {
                uids: users.chain(members).collect(),
                everybody: allow.users.is_empty() && allow.groups.is_empty(),
                gids,
                allow: allow.clone(),
            }
        });
        Policy {
            rules: rules.collect(),
            limits: config.limits,
        }
    }

    /// The rights of a client with the service of that name.
    pub fn rights(&self, client: &Client, service: &str) -> Rights {
        if client.uid == 0 {
            return EVERYTHING;
        }
        let names = |rule: &&Rule| {
            let services = &rule.allow.services;
            services.is_empty() || services.iter().any(|name| name == service)
        };
        let mut rights = Rights::default();
        for Rule { allow, .. } in self.rules_for(client).filter(names) {
            rights.see = rights.see.max(allow.see);
            rights.application_services |= allow.application_services;
            rights.sleeping_handlers |= allow.sleeping_handlers;
            rights.add_services |= allow.add_services;
            rights.set_parameters |= allow.set_parameters;
        }
        rights
    }

    /// The limits of a client's user; of several rules the last one applies. Root has none.
    pub fn limits(&self, client: &Client) -> Limits {
        let mut account = *client;
        if client.account != client.uid {
            account.uid = client.account;
            account.gid = u32::MAX; // the groups of a container are its own
        }
        self.rules_for(&account)
            .filter_map(|rule| rule.allow.limits.as_ref())
            .fold(self.limits, |limits, change| change.as_ref().apply(limits))
    }

    fn rules_for(&self, client: &Client) -> impl Iterator<Item = &Rule> {
        let (uid, gid) = (client.uid, client.gid);
        self.rules.iter().filter(move |rule| {
            rule.everybody || rule.uids.contains(&uid) || rule.gids.contains(&gid)
        })
    }

    /// Decides whether a client may make this subscription, and which events it sees.
    ///
    /// # Errors
    /// The right that it lacks.
    pub fn subscribe(
        &self,
        client: &Client,
        service: &Service<'_>,
        receiver: &Receiver,
        actions: &[Action],
    ) -> Result<Scope, Denied> {
        let rights = self.rights(client, service.name);
        may_reach(client, receiver)?;
        if let Some(owner) = service.owner_uid
            && owner != client.uid
            && !rights.application_services
        {
            return Err(Denied {
                action: "subscribing to another user's application service",
                needs: "a rule with application_services in the daemon's configuration",
            });
        }
        if actions.iter().any(sleeps) {
            may_read_memory(client, receiver, &rights)?;
        }
        // A user who may use a service of another one may see the events that its owner raises.
        let sees_owner = service.owner_uid.is_some_and(|owner| owner != client.uid);
        Ok(match rights.see {
            See::All => Scope::All,
            See::Own if sees_owner => Scope::All,
            See::Own => Scope::Own,
        })
    }

    /// Decides whether a client may send events to the other hosts of the channel with this id
    /// ([`text_id`] of its name).
    ///
    /// # Errors
    /// The right that it lacks.
    pub fn publish(&self, client: &Client, channel: u64) -> Result<(), Denied> {
        let mut rules = self.rules_for(client).map(|rule| &rule.allow);
        let may = rules.any(
            |Allow {
                 publish, services, ..
             }| {
                let names = |name: &String| text_id(name) == channel;
                *publish && (services.is_empty() || services.iter().any(names))
            },
        );
        if may || client.uid == 0 {
            return Ok(());
        }
        Err(Denied {
            action: "sending events to other hosts of this channel",
            needs: "a rule with publish in the daemon's configuration",
        })
    }

    /// Decides whether a client may set a service's parameter.
    pub fn set_parameter(&self, client: &Client, service: &Service<'_>) -> Result<(), Denied> {
        let owns = service.owner_uid == Some(client.uid);
        if owns || self.rights(client, service.name).set_parameters {
            return Ok(());
        }
        Err(Denied {
            action: "setting a parameter that holds for everybody",
            needs: "a rule with set_parameters in the daemon's configuration",
        })
    }

    /// Decides whether a client may load services into the kernel.
    pub fn add_service(&self, client: &Client) -> Result<(), Denied> {
        if self.rights(client, "").add_services {
            return Ok(());
        }
        Err(Denied {
            action: "loading a service into the kernel",
            needs: "root, or a rule with add_services in the daemon's configuration",
        })
    }

    /// Whether a client may see the owner and the counters of an application service.
    pub fn may_look_at_service(&self, client: &Client, service: &Service<'_>) -> bool {
        service.owner_uid.is_none_or(|owner| {
            self.may_look(client, owner, service.name)
                || self.rights(client, service.name).application_services
        })
    }

    /// Whether a client may see objects of user `uid` that belong to this service.
    pub fn may_look(&self, client: &Client, uid: u32, service: &str) -> bool {
        uid == client.uid || self.rights(client, service).see == See::All
    }
}

/// kill(2), with the client's effective user as it was when it connected.
fn may_reach(client: &Client, receiver: &Receiver) -> Result<(), Denied> {
    let own = client.uid == receiver.uid || client.uid == receiver.saved_uid;
    if client.uid == 0 || client.pid == receiver.pid || own {
        return Ok(());
    }
    Err(Denied {
        action: "delivering to another user's process",
        needs: "root",
    })
}

/// Reading memory needs more than sending a signal: every user of the receiver must be the
/// client's.
fn may_read_memory(client: &Client, receiver: &Receiver, rights: &Rights) -> Result<(), Denied> {
    let action = "a handler that reads its receiver's memory";
    if !rights.sleeping_handlers {
        return Err(Denied {
            action,
            needs: "a rule with sleeping_handlers in the daemon's configuration",
        });
    }
    let own = client.uid == receiver.uid && client.uid == receiver.saved_uid;
    if client.uid != 0 && !own {
        return Err(Denied {
            action,
            needs: "a receiver that is a process of the same user",
        });
    }
    Ok(())
}

fn sleeps(action: &Action) -> bool {
    let is_handler = matches!(action.kind, ACTION_HANDLER | ACTION_THREAD);
    is_handler && action.handler >= HANDLER_SLEEPING && action.handler != HANDLER_ECODE
}

#[cfg(test)]
mod tests;
