//! The header of GS2 (RFC 5801 §4) before a first message: channel binding, and the identity to act as.

use crate::channel::ChannelKind;

/// The GS2 header of the client's first message (RFC 5801 §4), and the message behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gs2<'m> {
    /// As it was sent, with its last comma.
    pub(crate) text: &'m str,
    /// NAME of `p=NAME`: the channel binding that the client uses.
    pub(crate) channel: Option<&'m str>,
    /// `y`: the client has bindings, and thinks that the server has none.
    pub(crate) is_downgrade: bool,
    pub(crate) authzid: Option<Box<str>>,
    pub(crate) rest: &'m str,
}

impl<'m> Gs2<'m> {
    pub(crate) fn read(message: &'m str) -> Option<Self> {
        let (flag, tail) = message.split_once(',')?;
        let (authzid, rest) = tail.split_once(',')?;
        let channel = flag.strip_prefix("p=");
        if channel.is_none() && !matches!(flag, "n" | "y") {
            return None;
        }
        let authzid = match authzid {
            "" => None,
            named => Some(unescaped(named.strip_prefix("a=")?)?.into()),
        };
        let text = &message[..message.len() - rest.len()];
        Some(Self { text, channel, is_downgrade: flag == "y", authzid, rest })
    }

    /// Returns the kind of channel binding that the client uses; none for one that is not known here.
    pub(crate) fn kind(&self) -> Option<ChannelKind> {
        ChannelKind::parse(self.channel?)
    }
}

/// Decodes a name of SASL (RFC 5802 §5.1): `=2C` is a comma and `=3D` an equals sign, and no other `=` stands in it.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('=');
    out.push_str(parts.next()?);
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        out.push(match code {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        out.push_str(rest);
    }
    (!out.is_empty() && !out.contains('\0')).then_some(out)
}

/// Encodes a name of SASL.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_have_a_flag_and_perhaps_an_identity() {
        let gs2 = Gs2::read("n,,n=user,r=x").unwrap();
        assert_eq!((gs2.text, gs2.channel, gs2.is_downgrade, gs2.rest), ("n,,", None, false, "n=user,r=x"));
        let gs2 = Gs2::read("p=tls-exporter,a=a=2Cb,n=user").unwrap();
        assert_eq!((gs2.text, gs2.kind()), ("p=tls-exporter,a=a=2Cb,", Some(ChannelKind::TlsExporter)));
        assert_eq!(gs2.authzid.as_deref(), Some("a,b"));
        assert!(Gs2::read("y,,").unwrap().is_downgrade);
        for bad in ["", "n", "n,", "x,,n=u", "n,b=x,", "n,a=,", "n,a==,n=u", "n,a==4D,"] {
            assert_eq!(Gs2::read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_escaped_name_has_no_comma_and_is_read_again(name in "[^\0]{1,20}") {
            let escaped = escaped(&name);
            prop_assert!(!escaped.contains(','));
            prop_assert_eq!(unescaped(&escaped), Some(name));
        }

        #[test]
        fn no_header_panics(text in ".{0,40}") {
            let _ = Gs2::read(&text);
        }
    }
}
