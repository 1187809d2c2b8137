//! A writer that can be aborted, so that an incomplete archive does not look complete.

use std::{
    io::{self, Write},
    sync::Arc,
};

use parking_lot::Mutex;

/// A writer that discards everything once it is aborted. The writers of archive formats complete
/// their archive when they are dropped, even after an error; aborting first prevents that. Clones
/// share the underlying writer.
#[derive(Clone)]
pub(super) struct AbortableWriter(Arc<Mutex<Option<Box<dyn Write + Send>>>>);

impl AbortableWriter {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        AbortableWriter(Arc::new(Mutex::new(Some(Box::new(out)))))
    }

    /// Returns a guard that aborts this writer when dropped. It must be dropped before the writer
    /// of the archive format.
    pub(super) fn abort_on_drop(&self) -> AbortGuard<'_> {
        AbortGuard(Some(self))
    }

    /// Flushes the underlying writer.
    pub(super) fn flush_all(&self) -> io::Result<()> {
        self.0.lock().as_mut().map_or(Ok(()), |out| out.flush())
    }

    fn abort(&self) {
        self.0.lock().take();
    }
}

/// Aborts an [`AbortableWriter`] when dropped, unless it is disarmed.
pub(super) struct AbortGuard<'a>(Option<&'a AbortableWriter>);

impl AbortGuard<'_> {
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0 {
            writer.abort();
        }
    }
}

impl Write for AbortableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = self.0.lock();
        let written = match &mut *out {
            Some(out) => out.write(bytes),
            None => Ok(bytes.len()),
        };
        if written.is_err() {
            out.take();
        }
        written
    }

    /// Does nothing: archive writers flush after every small part. See
    /// [`AbortableWriter::flush_all`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
