//! Macros: what the server tells the filter besides the commands, such as `{auth_authen}`.

use crate::{
    Stage,
    wire::{Data, Fault, push_string},
};

/// A value that a filter gets with a command, by Sendmail's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Macro<'a> {
    /// The name, with or without braces: `i`, `{auth_type}`.
    pub name: &'a str,
    /// The value, which is not empty: a macro without a value is left out.
    pub value: &'a str,
}

/// The macros of a stage, unless the filter names others: the ones that Postfix sends.
fn default_names(stage: Stage) -> &'static str {
    match stage {
        Stage::Connect => "j {daemon_name} {daemon_addr} v _",
        Stage::Hello => "{tls_version} {cipher} {cipher_bits} {cert_subject} {cert_issuer}",
        Stage::Mail => "i {auth_type} {auth_authen} {auth_author} {mail_addr} {mail_host} {mail_mailer}",
        Stage::Recipient => "i {rcpt_addr} {rcpt_host} {rcpt_mailer}",
        Stage::Data | Stage::EndOfHeaders | Stage::EndOfMessage => "i",
        Stage::Negotiation | Stage::Header | Stage::Body | Stage::Unknown => "",
    }
}

/// The stages in the numbers of the protocol (`SMFIM_CONNECT` and so on).
const STAGES: [Stage; 7] = [
    Stage::Connect,
    Stage::Hello,
    Stage::Mail,
    Stage::Recipient,
    Stage::Data,
    Stage::EndOfMessage,
    Stage::EndOfHeaders,
];

/// What the filter has chosen for each stage; `None` keeps the usual macros.
#[derive(Debug, Default)]
pub(crate) struct Wanted([Option<Box<str>>; STAGES.len()]);

impl Wanted {
    /// Reads the lists behind the numbers of a negotiation.
    pub(crate) fn parse(data: &mut Data<'_>) -> Result<Self, Fault> {
        let mut wanted = Self::default();
        while !data.is_empty() {
            let stage = usize::try_from(data.number()?).ok();
            let list = stage.and_then(|stage| wanted.0.get_mut(stage));
            let names = str::from_utf8(data.string()?).map_err(|_| "the name of a macro is not UTF-8")?;
            *list.ok_or("macros of a stage that does not exist")? = Some(names.into());
        }
        Ok(wanted)
    }

    fn names(&self, stage: Stage) -> &str {
        let number = STAGES.iter().position(|it| *it == stage);
        number.and_then(|number| self.0[number].as_deref()).unwrap_or_else(|| default_names(stage))
    }

    /// Appends the macros that the filter wants at the stage.
    pub(crate) fn push(&self, stage: Stage, macros: &[Macro<'_>], out: &mut Vec<u8>) {
        let names = self.names(stage);
        for Macro { name, value } in macros {
            let name = bare(name);
            let is_wanted = names.split([' ', ',', '\t']).any(|wanted| bare(wanted) == name);
            if !is_wanted || name.is_empty() || value.is_empty() {
                continue;
            }
            if name.len() == 1 {
                push_string(out, name.as_bytes());
            } else {
                push_string(out, format!("{{{name}}}").as_bytes());
            }
            push_string(out, value.as_bytes());
        }
    }
}

/// Removes the braces of a long name.
fn bare(name: &str) -> &str {
    name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(wanted: &Wanted, stage: Stage, macros: &[(&str, &str)]) -> Vec<u8> {
        let macros: Vec<_> = macros.iter().map(|(name, value)| Macro { name, value }).collect();
        let mut out = Vec::new();
        wanted.push(stage, &macros, &mut out);
        out
    }

    #[test]
    fn the_list_of_postfix_is_sent_unless_the_filter_has_another() {
        let macros = [("j", "mx.test"), ("{client_addr}", "192.0.2.1"), ("daemon_name", "mx"), ("v", "")];
        let sent = pushed(&Wanted::default(), Stage::Connect, &macros);
        assert_eq!(sent, b"j\0mx.test\0{daemon_name}\0mx\0");
        let wanted = Wanted::parse(&mut Data(b"\0\0\0\0client_addr, {j}\0\0\0\0\x06\0")).unwrap();
        assert_eq!(pushed(&wanted, Stage::Connect, &macros), b"j\0mx.test\0{client_addr}\x00192.0.2.1\0");
        assert_eq!(pushed(&wanted, Stage::EndOfHeaders, &[("i", "1")]), b"");
        assert_eq!(pushed(&wanted, Stage::EndOfMessage, &[("i", "1")]), b"i\x001\0");
    }

    #[test]
    fn a_list_that_is_cut_off_or_of_no_stage_is_a_fault() {
        for data in [&b"\0\0"[..], b"\0\0\0\0i", b"\0\0\0\x07i\0", b"\xff\xff\xff\xffi\0", b"\0\0\0\0\xff\0"]
        {
            assert!(Wanted::parse(&mut Data(data)).is_err(), "{data:?}");
        }
    }
}
