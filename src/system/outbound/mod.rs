//! The HTTP client for requests to addresses that users configure.
//!
//! ```text
//! URL ──▶ resolver ──▶ address policy ──▶ TCP to a checked address ──▶ TLS for the URL's name
//!                          │
//!                          └─ a private, local or reserved address, unless it is allowed: error
//! ```
//!
//! - [`AddressPolicy`]: which addresses may be connected to.
//! - [`HostResolver`]: the resolution of names. The connection is made to an address that the
//!   policy has checked, so that a name which resolves to another address later changes nothing.
//! - [`OutboundClient`]: GET and POST requests with bounds on time and size. Redirects of a GET
//!   request are followed within their origin only, those of a POST request are not. There are no
//!   proxies, cookies and referrers.
//! - [`FetchNetwork`] and [`FetchClient`]: any request of a script, with a streamed response.

mod address_policy;
mod client;
mod connector;
mod error;
mod fetch;
mod tls;

#[cfg(test)]
pub(crate) mod tests;

pub use address_policy::{AddressPolicy, AllowedNetwork};
pub use client::{
    OutboundClient, OutboundOptions, OutboundPost, OutboundRequest, OutboundResponse,
};
pub use connector::{HostResolver, SystemResolver};
pub use error::{OutboundError, OutboundSetupError};
pub use fetch::{FetchClient, FetchNetwork, FetchRequest};
