//! Packages: static binaries, Debian packages, container images. `cargo xtask release` makes all of them.

pub(crate) mod binaries;
pub(crate) mod deb;
pub(crate) mod image;
pub(crate) mod stage;

use crate::shell::{Done, target_dir};
use clap::Subcommand;

/// The kinds of packages.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Package {
    /// Build the Debian packages of postrider and postlab
    Deb(Options),
    /// Build binaries that need no libraries
    Static(Options),
    /// Build the container images, OCI archives
    Container(Options),
}

/// How packages are built.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The profile of Cargo; `release` and `dev` build sooner, for tests of a package
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// Builds a package, and prints its path.
pub(crate) fn build(package: &Package) -> Done {
    let (Package::Deb(options) | Package::Static(options) | Package::Container(options)) = package;
    let built = binaries::build(&options.profile)?;
    let (out, epoch) = (target_dir().join("packages"), binaries::epoch()?);
    let paths = match package {
        Package::Static(_) => binaries::PROGRAMS.map(|name| built.join(name)).to_vec(),
        Package::Deb(_) => deb::build(&built, &out, epoch)?,
        Package::Container(_) => {
            let programs = [stage::Program::Postrider, stage::Program::Postlab];
            programs
                .map(|kind| image::build(kind, &built, &out, epoch))
                .into_iter()
                .collect::<Result<_, _>>()?
        }
    };
    for path in paths {
        println!("{}", path.display());
    }
    Ok(())
}
