//! A text and the environment for which it is compiled: that of a tracepoint, if the text is a
//! service; that of a service, if the options name one; else the text declares its own input. The
//! options give the names of attributes, of sinks' attributes and of services to raise, so that a
//! filter can be tried before its service exists.
//!
//! A text that cannot be read or has errors is a usage error (exit code 2), here as in `ecalls
//! watch`: exit code 1 of `ecalls ecode test` means that a test ran and failed.

use std::io::Read;
use std::path::{Path, PathBuf};

use ::ecode::Checked;
use ::ecode::bpf::Object;
use ::ecode::diagnostic::{Diagnostic, Diagnostics, Severity};
use ::ecode::environment::{Environment, Naming};
use ::ecode::lexer::{TokenKind, lex};
use ::ecode::source::Source;
use ecalls_abi::service::SERVICE_USER;
use ecalls_abi::version::DATA_MAX;
use ecalls_kernel::builtin::BUILTINS;
use ecalls_kernel::{Error, tracepoint};

use crate::exit::{Code, Failure};
use crate::output::note;

/// The text, and its environment.
#[derive(Debug, clap::Args)]
pub(crate) struct TextArgs {
    /// The text; - reads standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) environment: EnvironmentArgs,
}

/// The environment for which a text is compiled.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EnvironmentArgs {
    /// Service whose events the program handles: the fields of their data are its input
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Names of the channel's attributes, in order
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) attributes: Vec<String>,
    /// Names of the sinks' attributes, in order; allows the text to use sinks
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) sinks: Option<Vec<String>>,
    /// Names of application services whose events the text may raise
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) raises: Vec<String>,
    /// Define a constant, e.g. NUM_RESOURCES=16
    #[arg(long = "const", value_name = "NAME=VALUE", value_parser = constant)]
    pub(crate) constants: Vec<(String, i64)>,
}

fn constant(text: &str) -> Result<(String, i64), String> {
    let wrong = || format!("'{text}' is not NAME=VALUE with an integer value");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), value.parse().map_err(|_| wrong())?))
}

impl EnvironmentArgs {
    /// The names that the text may use.
    pub(crate) fn environment(&self) -> Result<Environment, Failure> {
        let mut environment = Environment {
            attributes: self.attributes.clone(),
            sinks: self.sinks.clone(),
            constants: self.constants.clone(),
            naming: Naming {
                attributes: "name the channel's attributes: --attributes load,jobs",
                sinks: "say that there are sinks, and name their attributes: --sinks load",
                services: "services of applications can be raised; name them: --raises alarm",
                input: "if it is a field of a service's events, name the service: --service socket",
            },
            // Only applications' services can be raised, here as in a running core.
            services: (self.raises.iter().cloned())
                .zip(SERVICE_USER..)
                .filter(|(name, _)| BUILTINS.iter().all(|builtin| builtin.name != name))
                .collect(),
            ..Environment::default()
        };
        if let Some(name) = &self.service {
            let (format, kinds) = service(name)?;
            environment.input = Some(format);
            environment.output_most = Some(DATA_MAX as u32);
            environment.kinds = kinds.split_whitespace().map(str::to_owned).collect();
        }
        Ok(environment)
    }
}

/// Format and kinds of a service: a built-in one, or one that is registered now.
fn service(name: &str) -> Result<(String, String), Failure> {
    if let Some(builtin) = BUILTINS.iter().find(|builtin| builtin.name == name) {
        return Ok((builtin.format.to_owned(), builtin.kinds.to_owned()));
    }
    let known = || {
        let names: Vec<_> = BUILTINS.iter().map(|builtin| builtin.name).collect();
        let names = names.join(", ");
        Failure::new(
            Code::Unknown,
            format!("no service is named '{name}'; without a core there are: {names}"),
        )
    };
    let Ok(Some(ecalls)) = ecalls::Ecalls::join() else {
        return Err(known());
    };
    let services = ecalls.services()?;
    let found = services.iter().find(|service| service.info.name() == name);
    let info = &found.ok_or_else(known)?.info;
    let kinds: Vec<_> = info.kinds().collect();
    Ok((info.format().to_owned(), kinds.join(" ")))
}

/// Reads a text.
pub(crate) fn read(file: &Path) -> Result<Source, Failure> {
    let mut text = Vec::new();
    let limit = ::ecode::limits::TEXT_BYTES as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(limit).read_to_end(&mut text))
    };
    let name = if file == Path::new("-") {
        "stdin".to_owned()
    } else {
        file.display().to_string()
    };
    read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        let valid = String::from_utf8_lossy(&error.as_bytes()[..at]);
        let place = Source::new(&name, valid).at(at as u32);
        Failure::usage(format!(
            "{place}: the byte {byte:#04x} is not valid UTF-8: save the text as UTF-8"
        ))
    })?;
    Ok(Source::new(name, text))
}

/// Checks a text and prints its diagnostics on standard error. Errors among them become one
/// failure.
pub(crate) fn check(args: &TextArgs) -> Result<(Source, Checked), Failure> {
    let source = read(&args.file)?;
    let checked = check_source(&source, &args.environment)?;
    Ok((source, checked))
}

/// See [`check`].
pub(crate) fn check_source(source: &Source, args: &EnvironmentArgs) -> Result<Checked, Failure> {
    let environment = match tracepoint::surroundings(source) {
        Ok(Some((_, environment))) => environment,
        Ok(None) => args.environment()?,
        Err(Error::Ecode(told)) => {
            note(told);
            return Err(nothing_compiled(source, 1));
        }
        Err(other) => return Err(other.into()),
    };
    let checked = check_for(source, &environment)?;
    warn_of_constants(source, args, &checked);
    Ok(checked)
}

/// The same for an environment that no options describe.
pub(crate) fn check_for(source: &Source, environment: &Environment) -> Result<Checked, Failure> {
    match ::ecode::check(source, environment) {
        Ok(checked) => {
            warn(source, &checked.warnings);
            Ok(checked)
        }
        Err(diagnostics) => {
            note(diagnostics.render(source).trim_end());
            let errors = diagnostics
                .all
                .iter()
                .filter(|d| d.severity == Severity::Error);
            let count = errors.count() + diagnostics.left_out as usize;
            Err(nothing_compiled(source, count))
        }
    }
}

fn nothing_compiled(source: &Source, errors: usize) -> Failure {
    let errors = match errors {
        1 => "an error".to_owned(),
        count => format!("{count} errors"),
    };
    Failure::usage(format!("{}: {errors}; nothing was compiled", source.name))
}

/// Generates the program for the kernel.
pub(crate) fn object(source: &Source, checked: &Checked) -> Result<Object, Failure> {
    ::ecode::bpf::emit(&checked.program).map_err(|limit| {
        note(Diagnostics::new(vec![limit]).render(source).trim_end());
        Failure::usage(format!(
            "{}: the program exceeds a limit for programs in the kernel",
            source.name
        ))
    })
}

/// Warns of constants that were given and have no effect.
fn warn_of_constants(source: &Source, args: &EnvironmentArgs, checked: &Checked) {
    let constants = args.constants.iter().zip(&checked.tree.constants_used);
    let mut unused = constants.filter(|(_, used)| !**used).peekable();
    if unused.peek().is_none() {
        return;
    }
    let (tokens, _) = lex(source);
    for ((name, value), _) in unused {
        let named = tokens.iter().find(|token| {
            token.kind == TokenKind::Name && source.text_of(token.span) == name.as_str()
        });
        match named {
            Some(token) => {
                let message = format!("--const {name}={value} has no effect");
                let hint = "a declaration, field or kind of this name takes precedence";
                warn(
                    source,
                    &[Diagnostic::warning(token.span, message).hint(hint)],
                );
            }
            None => note(format_args!(
                "{}: warning: --const {name}={value} has no effect: the text does not name it",
                source.name
            )),
        }
    }
}

fn warn(source: &Source, warnings: &[Diagnostic]) {
    if !warnings.is_empty() {
        note(
            Diagnostics::new(warnings.to_vec())
                .render(source)
                .trim_end(),
        );
    }
}
