//! The thin control plane in front of many agents.
