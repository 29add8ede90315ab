//! Logins of client certificates, for EXTERNAL.

use auth::Failure;
use config::settings::Auth;
use mail::ClientCertificate;
use maps::Maps;

/// Returns the logins that a certificate stands for: that of the map, if the settings have one, else the e-mail addresses of a
/// trusted certificate.
///
/// # Errors
/// The map does not answer; it was logged.
pub async fn logins_of(
    certificate: &ClientCertificate,
    settings: &Auth,
    maps: &Maps,
) -> Result<Vec<Box<str>>, Failure> {
    let Some(map) = &settings.certificates else {
        return Ok(if certificate.is_trusted { certificate.addresses.clone() } else { Vec::new() });
    };
    for key in certificate.keys() {
        match maps.get(map, &key).wait().await {
            Ok(None) => {}
            Ok(Some(login)) => {
                let login = login.trim();
                let is_login = !login.is_empty() && !login.contains(char::is_control);
                return Ok(if is_login { vec![login.into()] } else { Vec::new() });
            }
            Err(error) => {
                tracing::error!("look up the login of a certificate: {error}");
                return Err(Failure::Unavailable);
            }
        }
    }
    Ok(Vec::new())
}
