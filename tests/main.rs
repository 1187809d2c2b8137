//! One test binary: `routes` repeats the URL tree, `flows` tells stories, `support` starts the real parts.

mod architecture;
mod flows;
mod routes;
mod support;
