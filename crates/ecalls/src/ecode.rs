//! Handlers in E-code (ECalls-05 §3.3; `man 7 ecode`): the names that a text may use where it runs,
//! and its compilation to a handler for the kernel side.

use ::ecode::Compiled;
use ::ecode::bpf::Options;
use ::ecode::data_format::output_format;
use ::ecode::diagnostic::{Diagnostic, Diagnostics};
use ::ecode::environment::Environment;
use ::ecode::source::Source;
use ecalls_abi::service::SERVICE_USER;
use ecalls_abi::version::DATA_MAX;
use ecalls_kernel::environment::{environment, may_raise};
use ecalls_kernel::handler::Handler;
use ecalls_kernel::stat::ServiceStat;
use ecalls_kernel::tracepoint::{self, Tracepoint};

use crate::host::Ecalls;
use crate::{Error, Result};

/// Compiles a text that is a service, for the tracepoint that it names.
///
/// # Errors
/// [`Error::Ecode`], [`Error::Denied`].
pub(crate) fn compile_service(source: &Source) -> Result<(Tracepoint, Compiled)> {
    if !ecalls_kernel::is_root() {
        return Err(Error::Denied {
            action: "adding a service in E-code",
            privilege: "root",
        });
    }
    let found = tracepoint::surroundings(source)?;
    let (tracepoint, environment) = found.unwrap_or_else(|| {
        let environment = Environment {
            service: true,
            ..Environment::default()
        };
        (Tracepoint::default(), environment)
    });
    let wrong = |told: Diagnostics| Error::Ecode(told.render(source).trim_end().to_owned());
    let compiled = ::ecode::compile(source, &environment).map_err(wrong)?;
    Ok((tracepoint, compiled))
}

/// Compiles a filter of the sinks of a channel, whose service has this format and these kinds, with
/// the names of the sinks' attributes; and the compiler's warnings.
///
/// # Errors
/// [`Error::Ecode`].
pub(crate) fn compile_filter(
    service: &ServiceStat,
    source: &Source,
    attributes: &[String],
) -> Result<(Handler, Vec<String>)> {
    let info = &service.info;
    let mut environment = environment(info, info.format(), false, &[])?;
    environment.sinks = Some(attributes.to_vec());
    let wrong = |told: Diagnostics| Error::Ecode(told.render(source).trim_end().to_owned());
    let compiled = ::ecode::compile(source, &environment).map_err(wrong)?;
    let warnings = compiled.warnings.iter().map(|one| rendered(one, source));
    let warnings = warnings.collect();
    let handler = Handler::new(&compiled.program, Some(compiled.object), source.clone())?;
    Ok((handler, warnings))
}

/// A warning as text for people.
pub(crate) fn rendered(warning: &Diagnostic, source: &Source) -> String {
    let rendered = Diagnostics::new(vec![warning.clone()]).render(source);
    rendered.trim_end().to_owned()
}

/// The environment of one subscription's handlers.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) ecalls: Ecalls,
    pub(crate) service: ServiceStat,
    /// Whether the subscription has a channel, whose counters and attributes they use.
    pub(crate) has_channel: bool,
    /// Names of its attributes, by number.
    pub(crate) attributes: Vec<String>,
}

/// A compiled text.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) handler: Handler,
    /// Format of the data for the rest of the chain.
    pub(crate) output: String,
    /// The compiler's warnings, as text for people.
    pub(crate) warnings: Vec<String>,
}

impl Surroundings {
    /// Checks a text whose input has the format `input`, and compiles it unless the daemon does.
    ///
    /// # Errors
    /// [`Error::Ecode`] with all errors in the text, as text for people.
    pub(crate) fn compile(&self, source: &Source, input: &str) -> Result<Made> {
        let environment = self.environment(source, input)?;
        let wrong = |told: Diagnostics| Error::Ecode(told.render(source).trim_end().to_owned());
        let checked = ::ecode::check(source, &environment).map_err(wrong)?;
        let output = output_format(&checked.tree, DATA_MAX as u32);
        let warnings: Vec<String> = checked
            .warnings
            .iter()
            .map(|one| rendered(one, source))
            .collect();
        let handler = if self.ecalls.core().is_ok() {
            let compiled = checked.emit(&Options::default()).map_err(wrong)?;
            Handler::new(&compiled.program, Some(compiled.object), source.clone())?
        } else {
            Handler::new(&checked.program, None, source.clone())?
        };
        Ok(Made {
            warnings,
            handler: handler.with_attributes(&environment.attributes),
            output: output.unwrap_or_else(|| input.to_owned()),
        })
    }

    /// The names that a text may use.
    fn environment(&self, source: &Source, input: &str) -> Result<Environment> {
        let info = &self.service.info;
        let mut environment = environment(info, input, self.has_channel, &self.attributes)?;
        // Reading all services takes longer than everything else.
        if may_raise(&source.text) {
            environment.services = self.raisable()?;
        }
        Ok(environment)
    }

    /// The application services whose events this process may raise, without the subscription's
    /// own: a handler that raised the event that it handles would never end.
    fn raisable(&self) -> Result<Vec<(String, u32)>> {
        let may_all = ecalls_kernel::is_root();
        let services = self.ecalls.services()?.into_iter();
        Ok(services
            .filter(|one| one.index >= SERVICE_USER && one.index != self.service.index)
            .filter(|one| may_all || one.owner == self.ecalls.pid())
            .map(|one| (one.info.name().to_owned(), one.index))
            .collect())
    }
}
