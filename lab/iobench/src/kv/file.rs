//! A plain file, appended to and synced: what no store can beat.

use super::backend::{Backend, Options, StepFactory};
use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    ops::Range,
    path::Path,
};

pub(super) const MAKER: StepFactory =
    StepFactory { name: "file", durability: "fdatasync after each group", has_own_log: false, open };

struct Plain(BufWriter<File>);

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let file = File::create_new(path.join("file")).map_err(|e| e.to_string())?;
    Ok(Box::new(Plain(BufWriter::new(file))))
}

impl Backend for Plain {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> io::Result<()> {
            for key in keys {
                self.0.write_all(&key.to_le_bytes())?;
                self.0.write_all(value)?;
            }
            self.0.flush()?;
            self.0.get_ref().sync_data()
        };
        write().map_err(|e| e.to_string())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let truncated = self.0.get_ref().set_len(0).and_then(|()| io::Seek::rewind(&mut self.0));
        truncated.map_err(|e| e.to_string())
    }
}
