//! Files in memory, for tests of the conversions.

use crate::Files;
use std::path::Path;

/// Files with their contents, by path.
pub(crate) struct MemoryFiles(pub(crate) &'static [(&'static str, &'static str)]);

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.as_bytes().to_vec())
    }

    fn machine(&self) -> String {
        "mx.test".to_owned()
    }
}
