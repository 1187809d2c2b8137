//! Responses with one page of a list.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use crate::{api::paging::Page, http::Json};

const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");
const NEXT_OFFSET: HeaderName = HeaderName::from_static("x-next-offset");

/// A page of a list: the body is an array, the headers tell whether there are more items.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    items: Vec<T>,
    /// The offset of the next page, or 0 on the last one.
    next_offset: u64,
}

impl<T> Paged<T> {
    /// Returns a page of `rows`, which start at the page's offset and include one row more than the
    /// page if there are more.
    pub(crate) fn new<R>(page: Page, mut rows: Vec<R>, convert: impl FnMut(R) -> T) -> Paged<T> {
        let limit = page.limit.get() as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let end = u64::from(page.offset.get()) + rows.len() as u64;
        Paged {
            next_offset: if has_more { end } else { 0 },
            items: rows.into_iter().map(convert).collect(),
        }
    }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let has_more = if self.next_offset > 0 {
            "true"
        } else {
            "false"
        };
        let headers = [
            (HAS_MORE, HeaderValue::from_static(has_more)),
            (NEXT_OFFSET, HeaderValue::from(self.next_offset)),
        ];
        (headers, Json(self.items)).into_response()
    }
}
