//! The clock, random numbers, identity and network of the machine.

pub mod clock;
pub mod identity;
pub mod network;
pub mod random;
