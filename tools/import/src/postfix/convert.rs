//! The configuration of Postfix as one of Postrider.

mod addresses;
mod context;
mod domains;
mod filters;
mod known;
mod listeners;
mod local;
mod luser;
mod networks;
mod numbers;
mod routes;
mod screen;
mod targets;
mod transports;
mod users;

use super::{main_cf::MainCf, master_cf::MasterCf, restrictions};
use crate::{Draft, Files, Report};
use context::Context;
pub(in crate::postfix) use context::{Context as RestrictionContext, Door};

/// Returns the configuration of Postrider that does what these files do, and a report about each setting. `dir` is the
/// directory of the files.
pub fn convert(main: &[u8], master: &[u8], dir: &str, files: &dyn Files) -> (Draft, Report) {
    let (main, master) = (MainCf::parse(main), MasterCf::parse(master));
    let mut context = Context::new(main, master, dir, files);
    context.names();
    listeners::write(&mut context);
    domains::write(&mut context);
    routes::write(&mut context);
    screen::write(&mut context);
    restrictions::write(&mut context);
    users::unlisted(&mut context);
    filters::write(&mut context);
    numbers::write(&mut context);
    known::judge(&mut context);
    context.finish()
}

/// Returns the domain that Postfix adds to addresses without one: `myorigin`.
pub fn origin(main: &[u8], dir: &str, files: &dyn Files) -> String {
    Context::new(MainCf::parse(main), MasterCf::default(), dir, files).origin()
}

#[cfg(test)]
mod tests;
