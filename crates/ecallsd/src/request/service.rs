//! Registering application services, and parameters of services.

use std::sync::Arc;

use ecalls_abi::message::SetParameter;
use ecalls_abi::service::ServiceInfo;
use ecalls_kernel::Error;
use ecalls_kernel::service::HostedService;

use super::{Context, No, Result, done};
use crate::client::{Held, Reply};
use crate::policy::Service;
use crate::quota::{Amounts, Resource};

/// Registers a service.
pub fn register(context: &mut Context<'_>, info: &ServiceInfo) -> Result<Reply> {
    for text in [&info.name[..], &info.format, &info.kinds] {
        let end = text.iter().position(|byte| *byte == 0);
        let is_text = end.is_some_and(|end| {
            str::from_utf8(&text[..end]).is_ok_and(|text| !text.chars().any(char::is_control))
        });
        if !is_text {
            return Err(No::invalid(
                "a text of the service",
                "not text",
                "UTF-8 without control characters that ends with 0",
            ));
        }
    }
    let charge = context.charge(Amounts::NONE.and(Resource::Services, 1))?;
    let thing = HostedService::register(Arc::clone(context.core), &context.client.owner, info)?;
    let index = thing.index();
    context
        .client
        .services
        .insert(index, Held { thing, charge });
    Ok(done(index))
}

/// Unregisters a service.
///
/// # Errors
/// The service does not belong to this client.
pub fn unregister(context: &mut Context<'_>, index: u32) -> Result<Reply> {
    match context.client.services.remove(&index) {
        Some(held) => {
            drop(held);
            Ok(done(0u32))
        }
        None => Err(No::from(Error::Closed("the service"))),
    }
}

/// Sets a parameter, which applies to all users.
pub fn set_parameter(context: &mut Context<'_>, body: &SetParameter) -> Result<Reply> {
    if context.core.next_service(body.service)? != Some(body.service) {
        return Err(No::from(Error::Closed("the service")));
    }
    let stat = context.core.service_stat(body.service)?;
    let service = Service {
        name: stat.info.name(),
        owner_uid: context
            .core
            .service_owner(body.service)?
            .map(|(_, uid)| uid),
    };
    context
        .policy
        .set_parameter(&context.client.who, &service)?;
    context.core.set_parameter(body.service, body.value)?;
    Ok(done(0u32))
}
