//! Selects the project of a request from the one that its key is bound to and the ones that its
//! headers name.

use http::HeaderMap;

use crate::{
    api::{ids::ProjectId, name::ProjectName},
    control::{Control, projects::ProjectError},
    http::{ApiError, ApiResult},
};

/// The headers with the id of a project. The second is an alias that some clients send.
const ID_HEADERS: [&str; 2] = ["x-project-id", "x-kernel-project-id"];
/// The header with the name of a project.
const NAME_HEADERS: [&str; 1] = ["x-kernel-project"];

/// The project that the headers of a request name.
pub(super) struct RequestedProject {
    id: Option<ProjectId>,
    name: Option<ProjectName>,
}

impl RequestedProject {
    /// Reads the headers. Rejects those that contradict each other.
    pub(super) fn of(headers: &HeaderMap) -> ApiResult<RequestedProject> {
        let parse_id = |text: &str| {
            let id = text.parse::<ProjectId>();
            id.map_err(|_| "must be a project id".to_owned())
        };
        let parse_name = |text: &str| ProjectName::parse(text.to_owned());
        Ok(RequestedProject {
            id: read(headers, &ID_HEADERS, parse_id)?,
            name: read(headers, &NAME_HEADERS, parse_name)?,
        })
    }
}

/// Returns the value that all `names` have in common, or `None` if none is present.
fn read<T: PartialEq>(
    headers: &HeaderMap,
    names: &[&'static str],
    parse: impl Fn(&str) -> Result<T, String>,
) -> ApiResult<Option<T>> {
    let mut selected: Option<T> = None;
    for name in names {
        for value in headers.get_all(*name) {
            let text = str::from_utf8(value.as_bytes()).unwrap_or_default();
            let value = parse(text).map_err(|message| ApiError::bad_field(*name, message))?;
            if selected.as_ref().is_some_and(|other| *other != value) {
                return Err(contradiction(name));
            }
            selected = Some(value);
        }
    }
    Ok(selected)
}

fn contradiction(header: &str) -> ApiError {
    ApiError::bad_field(
        header,
        "must not name another project than the other headers",
    )
}

/// Returns the selected project, which must be active, or `None` for the default project. A key
/// that is `bound` to one does not reveal whether others exist.
pub(super) async fn select_project(
    control: &Control,
    bound: Option<&ProjectId>,
    requested: RequestedProject,
) -> ApiResult<Option<ProjectId>> {
    if let Some(bound) = bound {
        check_bound(control, bound).await?;
    }
    let named = match &requested.name {
        Some(name) => Some(find_named(control, name).await?),
        None => None,
    };
    if let Some(bound) = bound {
        let is_foreign = requested.id.is_some_and(|id| id != *bound)
            || named.is_some_and(|named| named.as_ref() != Some(bound));
        return match is_foreign {
            true => Err(ApiError::forbidden(
                "the API key belongs to another project",
            )),
            false => Ok(Some(bound.clone())),
        };
    }
    let selected = match (requested.id, named) {
        (_, Some(None)) => return Err(ApiError::not_found("no project with that name")),
        (Some(id), Some(Some(named))) if id != named => {
            return Err(contradiction(NAME_HEADERS[0]));
        }
        (_, Some(Some(named))) => named,
        (Some(id), None) => id,
        (None, None) => return Ok(None),
    };
    control.projects.check_active(&selected).await?;
    Ok(Some(selected))
}

/// Checks the project of a bound key or of a token. The credential ends with the project.
pub(super) async fn check_bound(control: &Control, bound: &ProjectId) -> ApiResult<()> {
    match control.projects.check_active(bound).await {
        Err(ProjectError::NotFound) => Err(ApiError::unauthorized("the API key is not valid")),
        checked => Ok(checked?),
    }
}

async fn find_named(control: &Control, name: &ProjectName) -> ApiResult<Option<ProjectId>> {
    match control.projects.find_named(name.as_str()).await {
        Ok(id) => Ok(Some(id)),
        Err(ProjectError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
