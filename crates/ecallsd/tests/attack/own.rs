//! A client with a service of its own, by the library. [`crate::memory::Loop`] is the same in raw
//! messages. By it is tested here what a client's subscription may be beside its actions.

use ecalls::{Channel, DropReason, Ecalls, Service, Subscription};

use crate::actor::{Roles, Stage};
use crate::scene::Scene;
use crate::tests;
use crate::upload::{raise, received};

tests! {
    what_a_client_has_not_read_stands_for_further_events
}

pub(crate) const ROLES: Roles = &[("coalesces", coalesce)];

pub(crate) struct Own {
    pub(crate) service: Service,
    pub(crate) name: String,
    pub(crate) ecalls: Ecalls,
}

impl Own {
    pub(crate) fn register() -> Own {
        let ecalls = Ecalls::open().expect("the daemon");
        let name = format!("own-{}", std::process::id());
        let service = ecalls
            .register_service(&name, "u64 value", "one")
            .expect("a service");
        Own {
            service,
            name,
            ecalls,
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        let channel = self.ecalls.channel().ring(64).open();
        channel.expect("a channel")
    }

    /// Subscribes to its own events.
    pub(crate) fn subscribe(&self, channel: &Channel) -> Subscription {
        let own = self.ecalls.subscribe(&self.name).expect("its service");
        own.memory(channel).install().expect("a subscription")
    }
}

fn what_a_client_has_not_read_stands_for_further_events() {
    Scene::begin().attack("coalesces", &[]);
}

fn coalesce(stage: &mut Stage) {
    let own = Own::register();
    let (mut some, mut all) = (own.channel(), own.channel());
    let builder = own.ecalls.subscribe(&own.name).expect("its service");
    let coalescing = builder.coalesce().memory(&some).install();
    let coalescing = coalescing.expect("a subscription");
    let _each = own.subscribe(&all);
    for round in 1..=3 {
        for value in 0..4 {
            assert!(raise(&own.service, value));
        }
        assert_eq!(received(&mut some), [0]);
        assert_eq!(received(&mut all), [0, 1, 2, 3]);
        let count = coalescing.count().expect("its count");
        assert_eq!((count.offered, count.delivered), (4 * round, round));
        assert_eq!(count.dropped(DropReason::Coalesced), 3 * round);
    }
    stage.done();
}
