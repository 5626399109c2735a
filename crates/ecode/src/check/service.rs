//! The head of a service, and the format of its events' data, which is the program's output.

use super::Checker;
use crate::ast::{Name, ServiceItem, Unit};
use crate::data_format::output_format;
use crate::limits;
use crate::source::Span;
use crate::tree::Service;

/// The default name of a service's kind of events.
const KIND: &str = "event";

impl Checker<'_> {
    /// Requires the head of a service, if the text is to be one.
    pub(super) fn service_wanted(&mut self, unit: &Unit) {
        if self.environment.service
            && self.tree.service.is_none()
            && self.errors == 0
            && !self.unread
        {
            let at = unit.body.as_ref().map_or(Span::default(), |body| body.span);
            self.error_hint(
                at,
                "the text does not say which service it is",
                "begin with: service \"NAME\" on tracepoint \"CATEGORY:NAME\";",
            );
        }
    }

    pub(super) fn service(&mut self, item: &ServiceItem, former: &mut Option<Span>) {
        let Some((name, tracepoint)) = &item.head else {
            self.unread = true;
            return;
        };
        if former.replace(item.span).is_some() {
            return self.error(name.span, "a second service");
        }
        if !self.environment.service {
            return self.error_hint(
                name.span,
                "a service is not declared here: this text is for the events of one",
                "ecalls service add FILE adds a service",
            );
        }
        self.service_name(name);
        let mut service = Service {
            name: name.text.clone(),
            tracepoint: tracepoint.text.clone(),
            kind: KIND.to_owned(),
            ..Service::default()
        };
        for (number, kind) in item.kinds.iter().enumerate() {
            if number > 0 {
                self.error(kind.span, "kind is given twice");
            }
            service.kind.clone_from(&kind.text);
        }
        for (number, value) in item.deadlines.iter().enumerate() {
            if number > 0 {
                self.error(value.span, "deadline is given twice");
            }
            service.deadline_us = self.deadline(value).unwrap_or_default();
        }
        self.tree.service = Some(service);
    }

    fn service_name(&mut self, name: &Name) {
        let most = limits::SERVICE_NAME_BYTES;
        let blank = |c: char| c.is_whitespace() || c.is_control();
        if !(1..=most).contains(&name.text.len()) || name.text.contains(blank) {
            let message = format!("a service's name has 1 to {most} bytes, and no blanks");
            self.error(name.span, message);
        }
    }

    fn deadline(&mut self, value: &crate::ast::Expression) -> Option<u64> {
        let us = self.constant(value, "a deadline")?;
        let most = limits::SERVICE_DEADLINE_US;
        let known = u64::try_from(us).ok().filter(|us| (1..=most).contains(us));
        if known.is_none() {
            let message = format!("a deadline is 1 to {most} us, not {us}");
            self.error(value.span, message);
        }
        known
    }

    /// Requires that an output that replaces the event's data fits there.
    pub(super) fn output_fits(&mut self) {
        let Some((output, most)) = self.tree.output.zip(self.environment.output_most) else {
            return;
        };
        let variable = self.variable(output);
        let (span, size) = (variable.span, self.tree.structs.size(&variable.ty));
        if size.is_none_or(|size| size > most) {
            let size = size.unwrap_or(u32::MAX);
            let message = format!("an event has at most {most} bytes of data, output has {size}");
            let hint =
                "it takes the place of the event's data: leave fields out, or use shorter ones";
            self.error_hint(span, message, hint);
        }
    }

    /// The output as a format.
    pub(super) fn service_data(&mut self, head: Option<Span>) {
        let Some(output) = self.tree.output.filter(|_| head.is_some()) else {
            return;
        };
        let variable = self.variable(output);
        let (span, most) = (variable.span, limits::SERVICE_DATA_BYTES);
        let Some(format) = output_format(&self.tree, most) else {
            let size = self.tree.structs.size(&variable.ty).unwrap_or(u32::MAX);
            let message = format!("an event has at most {most} bytes of data, output has {size}");
            return self.error(span, message);
        };
        if format.len() > limits::SERVICE_FORMAT_BYTES {
            let most = limits::SERVICE_FORMAT_BYTES;
            let message = format!("the names and types of output have more than {most} bytes");
            self.error_hint(span, message, "use shorter names, or arrays");
        }
        if let Some(service) = &mut self.tree.service {
            service.format = format;
        }
    }
}
