//! Questions to policy servers in the protocol of Postfix (SMTPD_POLICY_README).

use config::PolicyService;
use maps::Stream;
use policy::{ServiceAction, parse_action};
use std::{
    fmt::Write as _,
    io,
    sync::{Mutex, PoisonError},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

/// A longer answer is treated as a fault of the service.
const ANSWER_MAX_BYTES: usize = 16 * 1024;
/// Connections that wait for the next question.
const IDLE_MAX: usize = 50;

type Connection = Box<dyn Stream>;

/// A policy server. Connections are kept for the next question.
pub(crate) struct PolicyClient {
    settings: PolicyService,
    idle: Mutex<Vec<Connection>>,
}

impl PolicyClient {
    pub(crate) fn new(settings: PolicyService) -> Self {
        Self { settings, idle: Mutex::default() }
    }

    /// Asks the server. A server that does not answer is treated as the configuration says.
    ///
    /// # Errors
    /// There is no answer, and it is not to be passed over.
    pub(crate) async fn ask(&self, attributes: &[(&str, String)]) -> Result<ServiceAction, Box<str>> {
        let request = request(attributes);
        let asked = timeout(self.settings.timeout, self.exchange(&request)).await;
        let why = match asked {
            Ok(Ok(answer)) => match answer.and_then(|answer| action_of(&answer)) {
                Ok(action) => return Ok(action),
                Err(why) => why,
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer in {:?}", self.settings.timeout),
        };
        let why = format!("policy service {} ({}): {why}", self.settings.name, self.settings.address);
        tracing::error!("{why}");
        if self.settings.passes_on_failure { Ok(ServiceAction::Pass) } else { Err(why.into()) }
    }

    /// The outer error is of the connection; the inner one says why the answer is of no use.
    async fn exchange(&self, request: &[u8]) -> io::Result<Result<String, String>> {
        // A server may have closed connections that were idle: then a new one is tried.
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.settings.address.connect().await?.boxed(),
            };
            match exchange(&mut connection, request).await {
                Ok(answer) => {
                    let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                    if answer.is_ok() && idle.len() < IDLE_MAX {
                        idle.push(connection);
                    }
                    return Ok(answer);
                }
                Err(error) if is_new => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// Lines `name=value`, and an empty line. A value keeps to its line.
fn request(attributes: &[(&str, String)]) -> Vec<u8> {
    let mut text = String::from("request=smtpd_access_policy\n");
    for (name, value) in attributes {
        let _ = write!(text, "{name}=");
        text.extend(value.chars().map(|c| if c.is_control() { '?' } else { c }));
        text.push('\n');
    }
    text.push('\n');
    text.into_bytes()
}

async fn exchange(connection: &mut Connection, request: &[u8]) -> io::Result<Result<String, String>> {
    connection.write_all(request).await?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let count = connection.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..count]);
        if answer.ends_with(b"\n\n") {
            return Ok(String::from_utf8(answer).map_err(|_| "the answer is not UTF-8".to_owned()));
        }
        if answer.len() > ANSWER_MAX_BYTES {
            return Ok(Err("the answer is too long".to_owned()));
        }
    }
}

fn action_of(answer: &str) -> Result<ServiceAction, String> {
    let action = answer.lines().find_map(|line| line.strip_prefix("action="));
    parse_action(action.ok_or("the answer has no action")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_adds_a_line_to_a_request() {
        let request = request(&[("sender", "a\nrequest=x@b".to_owned()), ("size", "1".to_owned())]);
        let text = String::from_utf8(request).unwrap();
        assert_eq!(text, "request=smtpd_access_policy\nsender=a?request=x@b\nsize=1\n\n");
    }

    #[test]
    fn the_action_is_found_among_other_lines() {
        assert_eq!(action_of("x=y\naction=DUNNO\n\n"), Ok(ServiceAction::Pass));
        assert!(action_of("x=y\n\n").is_err() && action_of("action=\n\n").is_err());
    }
}
