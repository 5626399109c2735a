//! Listing: the next service, subscription, channel, queue, user or fate that the client may see.

use ecalls_abi::message::{
    Answer, ChannelView, LookFate, Name, OWNER_UNTOLD, QueueView, ServiceView, SubscriptionView,
};
use ecalls_abi::text;
use ecalls_kernel::look::Whose;
use zerocopy::FromZeros;

use super::{Context, No, Result, end};
use crate::client::Reply;
use crate::policy::Service;

/// Fates that are read to find one that the client may see: all that two CPUs keep.
const FATES_READ: usize = 2048;

/// The first service from `from` on. Every client may see the names of services; the owner and
/// counters of an application service are visible to its user and by rules only.
pub fn service(context: &mut Context<'_>, from: u32) -> Result<Reply> {
    match context.core.next_service(from)? {
        Some(index) => view_service(context, index),
        None => Ok(end()),
    }
}

/// The service of a name.
pub fn find_service(context: &mut Context<'_>, body: &Name) -> Result<Reply> {
    if !body.name.contains(&0) {
        return Err(No::invalid(
            "the name",
            "not text",
            "a text that ends with 0",
        ));
    }
    let index = context.core.find_service(text::read(&body.name))?;
    view_service(context, index)
}

fn view_service(context: &Context<'_>, index: u32) -> Result<Reply> {
    let stat = context.core.service_stat(index)?;
    let service = Service {
        name: stat.info.name(),
        owner_uid: context.core.service_owner(index)?.map(|(_, uid)| uid),
    };
    if !context
        .policy
        .may_look_at_service(&context.client.who, &service)
    {
        let view = ServiceView {
            index,
            owner: OWNER_UNTOLD,
            info: stat.info,
            ..ServiceView::new_zeroed()
        };
        return Ok(Reply::plain(Answer::Service(view)));
    }
    let view = ServiceView {
        index,
        owner: stat.owner,
        subscriptions: u32::try_from(stat.subscriptions).unwrap_or(u32::MAX),
        attached: u32::from(context.core.is_attached(index)?),
        parameter: stat.parameter_ns.unwrap_or(0),
        info: stat.info,
        count: stat.count,
        skipped: stat.costs.iter().map(|cost| cost.skipped).sum(),
    };
    Ok(Reply::plain(Answer::Service(view)))
}

/// The first subscription from `from` on.
pub fn subscription(context: &mut Context<'_>, from: u32) -> Result<Reply> {
    let who = context.client.who;
    let sees_all = context.policy.may_look(&who, 0, "");
    let found = context.core.next_subscription(
        from,
        if sees_all {
            Whose::Anybody
        } else {
            Whose::User(who.uid)
        },
    )?;
    let Some((index, stat)) = found else {
        return Ok(end());
    };
    Ok(Reply::plain(Answer::Subscription(SubscriptionView {
        next: index + 1,
        pad: 0,
        row: stat.row,
        count: stat.count,
    })))
}

/// The first channel from `from` on.
pub fn channel(context: &mut Context<'_>, from: u32) -> Result<Reply> {
    let who = context.client.who;
    let sees_all = context.policy.may_look(&who, 0, "");
    let found = context
        .core
        .next_channel(from, |row| sees_all || row.uid == who.uid)?;
    let Some((index, row)) = found else {
        return Ok(end());
    };
    Ok(Reply::plain(Answer::Channel(ChannelView {
        next: index + 1,
        pad: 0,
        row,
    })))
}

/// The queue of number `from`; every client may see its state.
pub fn queue(context: &mut Context<'_>, from: u32) -> Result<Reply> {
    let queues = context.core.queues()?;
    let found = usize::try_from(from).ok().and_then(|at| queues.get(at));
    let Some(stat) = found else {
        return Ok(end());
    };
    Ok(Reply::plain(Answer::Queue(QueueView {
        next: from + 1,
        owner: from,
        ready: stat.ready,
        held: stat.held,
    })))
}

/// The first user from row `from` on.
pub fn user(context: &mut Context<'_>, from: u32) -> Result<Reply> {
    context.users.settle();
    let who = context.client.who;
    let visible = context
        .users
        .all()
        .filter(|(_, user)| user.row >= from)
        .filter(|(uid, _)| *uid == who.account || context.policy.may_look(&who, *uid, ""));
    let Some((uid, user)) = visible.min_by_key(|(_, user)| user.row) else {
        return Ok(end());
    };
    let whose = Whose::Row(user.row);
    let mut view = context.users.view(uid, user, context.ledger)?;
    let mut next = 0;
    while let Some((index, stat)) = context.core.next_subscription(next, whose)? {
        view.count.add(&stat.count);
        next = index + 1;
    }
    Ok(Reply::plain(Answer::User(view)))
}

/// The newest fate before a time, of an event that the client may see.
pub fn fate(context: &mut Context<'_>, body: &LookFate) -> Result<Reply> {
    let who = context.client.who;
    let fates = context.core.fates(body.event, FATES_READ)?;
    let before = |when_ns: u64| body.older_ns == 0 || when_ns < body.older_ns;
    let found = fates.into_iter().find(|fate| {
        before(fate.when_ns)
            && context
                .policy
                .may_look(&who, fate.uid, text::read(&fate.name))
    });
    Ok(found.map_or_else(end, |fate| Reply::plain(Answer::Fate(fate))))
}
