//! The operations of the API, and which of them are recorded in the audit log.

use http::Method;
use matchit::Router;
use utoipa::openapi::{OpenApi, PathItem, path::Operation as Declared};

/// Operations that change something, but only for a moment and up to hundreds of times per second:
/// input, heartbeats, reads with the method POST, and the bookkeeping of streams. All others that
/// change something are recorded.
const UNRECORDED: [&str; 17] = [
    "click_mouse",
    "drag_mouse",
    "get_mouse_position",
    "move_mouse",
    "press_key",
    "read_clipboard",
    "resize_process",
    "run_input_batch",
    "scroll",
    "send_heartbeat",
    "set_cursor",
    "stop_watch",
    "take_screenshot",
    "type_text",
    "watch_directory",
    "write_clipboard",
    "write_process_stdin",
];

/// Operations that read what is worth protecting, or that open a connection through which a browser
/// or a program is controlled.
const RECORDED_READS: [&str; 14] = [
    "attach_process",
    "connect_browser_devtools",
    "connect_devtools",
    "connect_live_view",
    "connect_live_view_read_only",
    "connect_tab_devtools",
    "download_dir_zip",
    "download_dir_zstd",
    "download_profile",
    "download_replay",
    "export_audit_logs",
    "get_totp_code",
    "get_totp_code_alias",
    "list_audit_logs",
];

/// The operations of an OpenAPI document by method and path.
pub(super) struct Operations {
    routes: Router<Route>,
}

struct Route {
    path: String,
    /// The number of segments of the path up to its last parameter, or all if it has none.
    resource_segments: usize,
    operations: Vec<(Method, Operation)>,
}

struct Operation {
    id: String,
    is_recorded: bool,
}

/// The operation that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub route: &'a str,
    pub id: &'a str,
    pub is_recorded: bool,
    resource_segments: usize,
}

impl Operations {
    /// Returns the operations of a document. Its paths do not contradict each other, because they
    /// are those of a router.
    pub(super) fn of(document: &OpenApi) -> Operations {
        let mut routes = Router::new();
        for (path, item) in &document.paths.paths {
            let route = Route {
                path: path.clone(),
                resource_segments: resource_segments(path),
                operations: operations(item),
            };
            if let Err(error) = routes.insert(path.clone(), route) {
                tracing::error!(path, %error, "requests for a path have no name in the audit log");
            }
        }
        Operations { routes }
    }

    /// Returns the operation of a request, or `None` if there is none with that method and path.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<Found<'_>> {
        let route = self.routes.at(path).ok()?.value;
        let (_, operation) = route.operations.iter().find(|(name, _)| name == method)?;
        Some(Found {
            route: &route.path,
            id: &operation.id,
            is_recorded: operation.is_recorded,
            resource_segments: route.resource_segments,
        })
    }
}

impl Found<'_> {
    /// Returns the part of a request's path that names the resource, without a leading slash:
    /// `browsers/brw_…` of `/browsers/brw_…/process/spawn`.
    pub(super) fn resource_of<'p>(&self, path: &'p str) -> &'p str {
        let path = path.strip_prefix('/').unwrap_or(path);
        let mut slashes = path.match_indices('/').map(|(index, _)| index);
        let end = slashes.nth(self.resource_segments.saturating_sub(1));
        end.map_or(path, |end| &path[..end])
    }
}

/// Returns whether requests with the method change something.
pub(super) fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn resource_segments(path: &str) -> usize {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let last_parameter = segments
        .iter()
        .rposition(|segment| segment.starts_with('{'));
    last_parameter.map_or(segments.len(), |index| index + 1)
}

fn operations(item: &PathItem) -> Vec<(Method, Operation)> {
    let declared: [(Method, &Option<Declared>); 6] = [
        (Method::GET, &item.get),
        // Handlers of GET serve HEAD.
        (Method::HEAD, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::PATCH, &item.patch),
        (Method::DELETE, &item.delete),
    ];
    declared
        .into_iter()
        .filter_map(|(method, declared)| {
            let id = declared.as_ref()?.operation_id.clone()?;
            let is_recorded = match is_mutating(&method) {
                true => !UNRECORDED.contains(&id.as_str()),
                false => RECORDED_READS.contains(&id.as_str()),
            };
            Some((method, Operation { id, is_recorded }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use utoipa_axum::{router::OpenApiRouter, routes};

    use super::*;

    #[utoipa::path(post, path = "/browsers", operation_id = "create_browser", responses((status = 201)))]
    async fn create() {}

    #[utoipa::path(get, path = "/browsers", operation_id = "list_browsers", responses((status = 200)))]
    async fn list() {}

    #[utoipa::path(post, path = "/browsers/{id}/computer/scroll", operation_id = "scroll", responses((status = 200)))]
    async fn scroll() {}

    #[utoipa::path(get, path = "/browsers/{id}/replays/{replay_id}/file", operation_id = "download_replay", responses((status = 200)))]
    async fn download() {}

    fn operations() -> Operations {
        let router = OpenApiRouter::<()>::new()
            .routes(routes!(create, list))
            .routes(routes!(scroll))
            .routes(routes!(download));
        Operations::of(router.get_openapi())
    }

    #[test]
    fn request_is_found_with_its_resource() {
        let operations = operations();
        // Method, path, operation, whether it is recorded, and the resource.
        let found = [
            ("POST", "/browsers", "create_browser", true, "browsers"),
            ("GET", "/browsers", "list_browsers", false, "browsers"),
            ("HEAD", "/browsers", "list_browsers", false, "browsers"),
            (
                "POST",
                "/browsers/b/computer/scroll",
                "scroll",
                false,
                "browsers/b",
            ),
            (
                "GET",
                "/browsers/b/replays/r/file",
                "download_replay",
                true,
                "browsers/b/replays/r",
            ),
        ];
        for (method, path, id, is_recorded, resource) in found {
            let found = operations.find(&method.parse().unwrap(), path).unwrap();
            assert_eq!((found.id, found.is_recorded), (id, is_recorded), "{path}");
            assert_eq!(found.resource_of(path), resource);
        }
        for (method, path) in [
            ("DELETE", "/browsers"),
            ("POST", "/browsers/"),
            ("GET", "/"),
        ] {
            assert_eq!(
                operations.find(&method.parse().unwrap(), path),
                None,
                "{path}"
            );
        }
    }
}
