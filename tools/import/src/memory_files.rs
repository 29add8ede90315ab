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

    fn list(&self, dir: &Path) -> Vec<String> {
        let below = self.0.iter().filter_map(|(name, _)| Path::new(name).strip_prefix(dir).ok());
        below.filter(|name| name.components().count() == 1).map(|name| name.display().to_string()).collect()
    }

    fn machine(&self) -> String {
        "mx.test".to_owned()
    }
}
