//! `/.well-known`.

mod jwks;
