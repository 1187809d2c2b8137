//! Whether the cursor is shown on the screen.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Clones tell of the same cursor. The X server hides it without telling others, so that those who draw it by themselves ask here.
#[derive(Clone, Debug)]
pub struct CursorShown(Arc<AtomicBool>);

impl Default for CursorShown {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl CursorShown {
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, shown: bool) {
        self.0.store(shown, Ordering::Relaxed);
    }
}
