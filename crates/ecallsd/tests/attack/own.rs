//! A client with a service of its own, by the library. [`crate::memory::Loop`] is the same in raw
//! messages.

use ecalls::{Channel, Ecalls, Service, Subscription};

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
