//! The mechanisms of a Dovecot that did not run when it was asked for them.

use super::Daemon;
use accept::logins::{DovecotAuth, Store};
use std::{sync::Arc, time::Duration};
use tokio::task::spawn_blocking;

/// Dovecot is asked this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Asks Dovecot for its mechanisms until it answers, and offers them then. The configuration may list mechanisms: then
/// there is nothing to ask for.
pub(super) async fn watch(daemon: Arc<Daemon>) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    loop {
        look.tick().await;
        let current = daemon.driver.current();
        let socket = match current.logins.as_ref().map(|logins| &logins.store) {
            Some(Store::Dovecot(dovecot)) if current.settings.auth.mechanisms.is_none() => {
                dovecot.silent_socket()
            }
            _ => None,
        };
        let Some(socket) = socket.map(DovecotAuth::new) else { continue };
        let asked = spawn_blocking(move || socket.ask_mechanisms()).await;
        if !matches!(asked, Ok(Ok(_))) {
            continue;
        }
        match daemon.renew_logins().await {
            Ok(false) => {}
            Ok(true) => tracing::info!("Dovecot answers: its mechanisms are offered"),
            Err(why) => tracing::error!("the mechanisms of Dovecot are not offered: {why}"),
        }
    }
}
