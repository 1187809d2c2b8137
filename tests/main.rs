//! The integration tests, as one binary.
//!
//! - `routes` has a module for each directory of the URL tree and tests one route at a time
//! - `flows` tests behaviour across routes and processes
//! - `packages` installs the Debian packages in containers, for `make deb-test` alone
//! - `machine` boots the VM image, for `make vm-test` alone
//! - `architecture` checks rules about the source text, the documents and the OpenAPI documents
//! - `support` starts agents, servers, browsers and clients for the tests

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::too_many_lines,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a failed step of a test is a panic; each test is a process; `pub` marks what a module offers"
)]

mod architecture;
mod flows;
mod machine;
mod packages;
mod routes;
mod support;
