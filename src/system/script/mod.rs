//! Script workers: where their program is (`location`), the process that they are forked from
//! (`template`), their own processes (`worker`) and the protocols of both (`protocol`).

pub mod location;
pub mod protocol;
pub mod template;
pub mod worker;
