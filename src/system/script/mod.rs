//! Script workers: where their program is (`location`), their processes (`worker`) and the protocol
//! that they speak (`protocol`).

pub mod location;
pub mod protocol;
pub mod worker;
