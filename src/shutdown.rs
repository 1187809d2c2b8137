//! Stopping in order.
