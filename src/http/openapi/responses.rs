//! Responses and headers that many operations have in common.

use utoipa::openapi::{
    Content, HeaderBuilder, Object, Ref, RefOr, Response, ResponseBuilder,
    header::Header,
    path::{Operation, PathItem},
    schema::Type,
};

use super::operations;

/// An error that is described once for all operations.
struct SharedError {
    status: u16,
    name: &'static str,
    description: &'static str,
}

const fn error(status: u16, name: &'static str, description: &'static str) -> SharedError {
    SharedError {
        status,
        name,
        description,
    }
}

const SHARED_ERRORS: &[SharedError] = &[
    error(
        400,
        "BadRequest",
        "The request is invalid; `details` has one entry per field",
    ),
    error(
        401,
        "Unauthorized",
        "The credential is missing, invalid or expired",
    ),
    error(
        403,
        "Forbidden",
        "The credential, or the site that the request comes from, has no access",
    ),
    error(404, "NotFound", "The resource does not exist"),
    error(
        408,
        "RequestTimeout",
        "The request body made no progress for 30 s",
    ),
    error(413, "PayloadTooLarge", "The request body is too long"),
    error(
        415,
        "UnsupportedMediaType",
        "The request body is not of a supported content type",
    ),
    error(
        429,
        "LimitExceeded",
        "A limit of the API key, such as its requests per second, is exceeded",
    ),
    error(
        500,
        "InternalError",
        "An internal error; the server's log has the cause under the request id",
    ),
    error(
        502,
        "BadGateway",
        "The browser is unreachable, or disconnected before it responded",
    ),
    error(
        503,
        "Unavailable",
        "The server is shutting down, or the browser is restarting",
    ),
    error(504, "Timeout", "The browser did not respond in time"),
];

/// A response header that is described once for all operations.
struct SharedHeader {
    header: &'static str,
    name: &'static str,
    kind: Type,
    description: &'static str,
}

const RETRY_AFTER: SharedHeader = SharedHeader {
    header: "Retry-After",
    name: "RetryAfter",
    kind: Type::Integer,
    description: "Seconds after which to repeat the request",
};
const SHOULD_RETRY: SharedHeader = SharedHeader {
    header: "X-Should-Retry",
    name: "ShouldRetry",
    kind: Type::String,
    description: "`false` if repeating the request cannot succeed, or could do its work twice",
};
const WWW_AUTHENTICATE: SharedHeader = SharedHeader {
    header: "WWW-Authenticate",
    name: "WwwAuthenticate",
    kind: Type::String,
    description: "`Bearer`",
};
const ACCEPT_RANGES: SharedHeader = SharedHeader {
    header: "Accept-Ranges",
    name: "AcceptRanges",
    kind: Type::String,
    description: "`bytes`",
};
const CONTENT_RANGE: SharedHeader = SharedHeader {
    header: "Content-Range",
    name: "ContentRange",
    kind: Type::String,
    description: "The returned bytes and the length of the whole, such as `bytes 0-99/1234`; for an unsatisfiable range `bytes */1234`",
};
const ETAG: SharedHeader = SharedHeader {
    header: "ETag",
    name: "ETag",
    kind: Type::String,
    description: "A strong entity tag, for `If-None-Match` and `If-Range`",
};
const SHARED_HEADERS: [&SharedHeader; 6] = [
    &RETRY_AFTER,
    &SHOULD_RETRY,
    &WWW_AUTHENTICATE,
    &ACCEPT_RANGES,
    &CONTENT_RANGE,
    &ETAG,
];

/// Declares shared errors for all operations of a path. Errors that an operation describes itself
/// stay as they are.
pub fn declare_errors(item: &mut PathItem, statuses: &[u16]) {
    for (_, operation) in operations(item) {
        declare(operation, statuses);
    }
}

pub(super) fn declare(operation: &mut Operation, statuses: &[u16]) {
    for shared in SHARED_ERRORS {
        if statuses.contains(&shared.status) {
            let responses = &mut operation.responses.responses;
            let response = responses.entry(shared.status.to_string());
            response.or_insert_with(|| RefOr::Ref(Ref::from_response_name(shared.name)));
        }
    }
}

/// Declares the errors of an operation's extractors, and completes the responses that the operation
/// declares itself with a description and with headers.
pub(super) fn complete(operation: &mut Operation, has_path_parameters: bool) {
    declare(
        operation,
        errors_of_extractors(operation, has_path_parameters),
    );
    // Any handler can panic.
    declare(operation, &[500]);
    let responses = &mut operation.responses.responses;
    let has_ranges = responses.contains_key("206");
    for (status, response) in responses {
        if let RefOr::T(response) = response {
            describe(status, response);
            add_headers(status, has_ranges, response);
        }
    }
}

fn errors_of_extractors(operation: &Operation, has_path_parameters: bool) -> &'static [u16] {
    let has_parameters = has_path_parameters || operation.parameters.iter().flatten().count() > 0;
    match &operation.request_body {
        // 503: the server shuts down while it receives the body.
        Some(RefOr::T(body)) if body.content.contains_key("application/json") => {
            &[400, 408, 413, 415, 503]
        }
        Some(_) => &[400, 408],
        None if has_parameters => &[400],
        None => &[],
    }
}

/// Describes a response that has no description, by its status.
fn describe(status: &str, response: &mut Response) {
    if !response.description.is_empty() {
        return;
    }
    let shared = SHARED_ERRORS
        .iter()
        .find(|shared| shared.status.to_string() == status);
    response.description = match (status, shared) {
        (_, Some(shared)) => shared.description,
        ("200", None) => "Success",
        ("201", None) => "Created",
        ("206", None) => "The requested range",
        _ => "",
    }
    .to_owned();
}

fn add_headers(status: &str, has_ranges: bool, response: &mut Response) {
    let headers: &[&SharedHeader] = match status {
        "200" if has_ranges => &[&ACCEPT_RANGES, &ETAG],
        "202" | "429" => &[&RETRY_AFTER],
        "206" => &[&ACCEPT_RANGES, &CONTENT_RANGE, &ETAG],
        "304" => &[&ETAG],
        "401" => &[&WWW_AUTHENTICATE],
        "409" | "502" | "504" => &[&SHOULD_RETRY],
        "416" => &[&CONTENT_RANGE],
        "503" => &[&RETRY_AFTER, &SHOULD_RETRY],
        _ => &[],
    };
    for header in headers {
        let reference = Ref::new(format!("#/components/headers/{}", header.name));
        let entry = response.headers.entry(header.header.to_owned());
        entry.or_insert(RefOr::Ref(reference));
    }
}

/// Returns the shared errors with their names.
pub(super) fn shared_errors() -> impl Iterator<Item = (String, RefOr<Response>)> {
    SHARED_ERRORS.iter().map(|shared| {
        let body = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        let mut response = ResponseBuilder::new()
            .description(shared.description)
            .content("application/json", body)
            .build();
        add_headers(&shared.status.to_string(), false, &mut response);
        (shared.name.to_owned(), RefOr::T(response))
    })
}

/// Returns the shared headers with their names.
pub(super) fn shared_headers() -> impl Iterator<Item = (String, RefOr<Header>)> {
    SHARED_HEADERS.iter().map(|shared| {
        let header = HeaderBuilder::new()
            .description(Some(shared.description))
            .schema(Some(Object::with_type(shared.kind.clone())))
            .build();
        (shared.name.to_owned(), RefOr::T(header))
    })
}
