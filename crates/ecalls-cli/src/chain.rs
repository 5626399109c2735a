//! The conditions and handlers of a subscription that a command makes: which events, and the chain
//! of handlers before they are delivered.

use std::path::PathBuf;

use ecalls::{Handler, SubscriptionBuilder};
use ecode::source::Source;

use crate::ecode::text;
use crate::exit::Failure;
use crate::handler;

/// Name of a text of the command line, for messages.
const CONDITION: &str = "--where";

/// Which events, and what becomes of them in the kernel.
#[derive(Debug, clap::Args)]
pub(crate) struct ChainArgs {
    /// Only events of this kind; the option may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// A handler that runs in the kernel before an event is delivered; several run in the order
    /// given
    #[arg(long = "handler", value_name = "HANDLER", value_parser = handler::parse)]
    pub(crate) handlers: Vec<Handler>,
    /// Only events for which this E-code is true, evaluated in the kernel: an expression
    /// (`bytes > 1000 && local_port == 80`) or a function body; the option may be repeated
    #[arg(long = "where", value_name = "TEXT")]
    conditions: Vec<String>,
    /// A handler in E-code, read from this file; several run in the order given, before --where
    #[arg(long = "ecode", value_name = "FILE")]
    texts: Vec<PathBuf>,
}

impl ChainArgs {
    /// Reads the files. All texts, in the order of the chain.
    pub(crate) fn texts(&self) -> Result<Vec<Source>, Failure> {
        let mut texts = Vec::new();
        for path in &self.texts {
            texts.push(text::read(path)?);
        }
        let conditions = self.conditions.iter();
        texts.extend(conditions.map(|text| Source::new(CONDITION, text)));
        Ok(texts)
    }

    /// The subscription with these handlers, and then the texts.
    pub(crate) fn subscribe(
        &self,
        mut builder: SubscriptionBuilder,
        texts: &[Source],
    ) -> SubscriptionBuilder {
        if !self.kinds.is_empty() {
            let kinds: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
            builder = builder.kinds(&kinds);
        }
        for handler in &self.handlers {
            builder = builder.handler(handler);
        }
        let texts = texts.iter();
        texts.fold(builder, |builder, text| {
            builder.ecode_named(&text.name, &text.text)
        })
    }
}
