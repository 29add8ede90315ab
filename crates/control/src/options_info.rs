//! The delivery options of a message as operators see them.

use mail::{DeliverByMode, DeliveryOptions, UnixMillis};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the sender asked for in MAIL, and the login. Fields that were not given are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OptionsInfo {
    /// The authenticated login that submitted the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// `AUTH=` of MAIL; empty for `<>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// True if the message may only be sent to servers with verified TLS (RFC 8689).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requiretls: bool,
    /// `BY` as a time, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_by_ms: Option<u64>,
    /// True if the message is returned when the deadline is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliver_by_returns: bool,
    /// True if each relay sends a DSN.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliver_by_trace: bool,
    /// The time before which no attempt is made, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_ms: Option<u64>,
    /// `MT-PRIORITY`, from -9 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
}

impl From<&DeliveryOptions> for OptionsInfo {
    fn from(options: &DeliveryOptions) -> Self {
        let by = options.deliver_by;
        Self {
            login: options.login.as_deref().map(str::to_owned),
            auth: options.auth.as_ref().map(|auth| auth.as_str().to_owned()),
            requiretls: options.requiretls,
            deliver_by_ms: by.map(|by| by.deadline.0),
            deliver_by_returns: by.is_some_and(|by| by.mode == DeliverByMode::Return),
            deliver_by_trace: by.is_some_and(|by| by.trace),
            release_ms: options.release.map(|release| release.0),
            priority: options.priority.map(mail::Priority::value),
        }
    }
}

impl fmt::Display for OptionsInfo {
    /// Writes `login alice, auth <a@b.test>, requiretls, by 2026-11-21T06:25:54.048Z or return, priority 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.login.as_ref().map(|login| format!("login {login}")));
        parts.extend(self.auth.as_ref().map(|auth| format!("auth <{auth}>")));
        parts.extend(self.requiretls.then(|| "requiretls".to_owned()));
        parts.extend(self.deliver_by_ms.map(|deadline| {
            let mode = if self.deliver_by_returns { "return" } else { "notify" };
            let trace = if self.deliver_by_trace { ", trace" } else { "" };
            format!("by {} or {mode}{trace}", UnixMillis(deadline).rfc3339())
        }));
        parts.extend(self.release_ms.map(|release| format!("not before {}", UnixMillis(release).rfc3339())));
        parts.extend(self.priority.map(|priority| format!("priority {priority}")));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{DeliverBy, Priority, ReversePath};

    #[test]
    fn all_options_are_shown_and_those_that_are_not_set_are_not() {
        let at = UnixMillis(1_795_242_354_048);
        let options = DeliveryOptions {
            login: Some("alice".into()),
            auth: Some(ReversePath::Null),
            requiretls: true,
            deliver_by: Some(DeliverBy { deadline: at, mode: DeliverByMode::Return, trace: true }),
            release: Some(at),
            priority: Priority::new(-3),
        };
        let info = OptionsInfo::from(&options);
        let time = "2026-11-21T06:25:54.048Z";
        let all = format!(
            "login alice, auth <>, requiretls, by {time} or return, trace, not before {time}, priority -3"
        );
        assert_eq!(info.to_string(), all);
        let json = serde_json::to_string(&info).unwrap();
        assert_eq!(serde_json::from_str::<OptionsInfo>(&json).unwrap(), info);
        let few = OptionsInfo { requiretls: true, ..OptionsInfo::default() };
        assert_eq!(
            (few.to_string().as_str(), serde_json::to_string(&few).unwrap().as_str()),
            ("requiretls", "{\"requiretls\":true}")
        );
    }
}
