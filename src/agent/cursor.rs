//! The visibility of the cursor on the screen.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether the cursor is visible. Clones share the value. The X server does not report that the
/// agent has hidden the cursor, so code that draws the cursor itself asks here.
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

    pub(super) fn set(&self, shown: bool) {
        self.0.store(shown, Ordering::Relaxed);
    }
}
