//! The logins of auth connections.

mod by_credential;
mod by_person;
mod handoff_codes;
mod health;
mod interruptions;
mod links;
mod logins;
mod sites;
mod visitor;
