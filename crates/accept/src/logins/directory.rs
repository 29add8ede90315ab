//! Users whose passwords a directory verifies.

use auth::Secret;
use maps::{LookupError, Maps, Reference};

/// Has the directory of a map verify a password, and returns the name of the login in lower case; none if the password is wrong or nobody
/// has that name.
///
/// # Errors
/// The directory cannot say.
pub async fn verify_by_directory(
    maps: &Maps,
    map: &Reference,
    user: &str,
    password: &Secret,
) -> Result<Option<Box<str>>, LookupError> {
    // Passwords of a bind are UTF-8 (RFC 4513 §5.1.3).
    let Ok(password) = std::str::from_utf8(password.bytes()) else { return Ok(None) };
    match maps.verify(map, user, password).wait().await? {
        Some(name) if name.contains(',') => {
            Err(LookupError::new(map, format!("the entry of {user} has several names: {name}")))
        }
        name => Ok(name.map(|name| name.to_lowercase().into())),
    }
}
