//! Script workers: their processes (`worker`) and the protocol that they speak (`protocol`).

pub mod protocol;
pub mod worker;
