//! The wire vocabulary: ids and types, importing nothing of ours.
