//! Rules about the project as a whole, checked against its source text, its
//! documents and its OpenAPI documents.
//!
//! - `dependencies`: which module may import which, and which crate has a single importer
//! - `documentation`: that the documents agree with the code
//! - `language`: words, comments, names of types
//! - `openapi`: that every operation of the documents is described
//! - `routes`: where the handler of a URL is, and that the documents are complete
//! - `size`: the length of files

mod dependencies;
mod documentation;
mod language;
mod openapi;
mod routes;
mod size;
mod source;
