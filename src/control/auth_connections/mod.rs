//! Auth connections: profiles that are kept logged in to a site.

pub mod flow;
