//! One page of a list, and where the next begins.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use crate::{api::paging::Page, http::Json};

const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");
const NEXT_OFFSET: HeaderName = HeaderName::from_static("x-next-offset");

/// The body is the array; the headers say whether there is more.
#[derive(Debug)]
pub struct Paged<T> {
    items: Vec<T>,
    /// 0 on the last page.
    next_offset: u64,
}

impl<T> Paged<T> {
    /// `found` begins at the page's offset and has one more than the page where there is more.
    pub fn new<F>(page: Page, mut found: Vec<F>, show: impl FnMut(F) -> T) -> Paged<T> {
        let limit = page.limit.get() as usize;
        let more = found.len() > limit;
        found.truncate(limit);
        let end = u64::from(page.offset.get()) + found.len() as u64;
        Paged {
            next_offset: if more { end } else { 0 },
            items: found.into_iter().map(show).collect(),
        }
    }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let more = if self.next_offset > 0 {
            "true"
        } else {
            "false"
        };
        let headers = [
            (HAS_MORE, HeaderValue::from_static(more)),
            (NEXT_OFFSET, HeaderValue::from(self.next_offset)),
        ];
        (headers, Json(self.items)).into_response()
    }
}
