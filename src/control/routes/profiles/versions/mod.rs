//! `/profiles/{id_or_name}/versions`.

pub(super) mod collection;
pub(super) mod restore;
