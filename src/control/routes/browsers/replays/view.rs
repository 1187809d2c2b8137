use std::sync::LazyLock;

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use super::{RECORDING_RETRY, TAG, meant};
use crate::{
    api::{ErrorBody, ids::ReplayId, replays::ReplayEndReason},
    control::{
        Control, replays::state::State as Where, routes::guard::Caller, session_token::Scope,
        store::ReplayRow,
    },
    http::{ApiError, ApiResult, Path},
};

const PAGE: &str = include_str!("player/player.html");
const STYLE: &str = include_str!("player/player.css");
const SCRIPT: &str = include_str!("player/player.js");

/// Nothing but this page's own style and script, and videos of this server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; media-src 'self'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest(STYLE),
        digest(SCRIPT)
    )
});

/// A page that plays a replay
///
/// `replay_view_url` leads here, with a token that opens this replay and nothing else.
#[utoipa::path(
    get,
    path = "/browsers/{id}/replays/{replay_id}/view",
    tag = TAG,
    params(
        ("id" = String, Path, description = "Id or name"),
        ("replay_id" = ReplayId, Path),
    ),
    responses(
        (status = 200, body = String, content_type = "text/html"),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 410, body = String, content_type = "text/html", description = "It is lost"),
    )
)]
pub async fn view(
    State(control): State<Control>,
    caller: Caller,
    Path((id, replay)): Path<(String, ReplayId)>,
) -> ApiResult<Response> {
    let browser = meant(&control, &caller, &id).await?;
    let row = control
        .replays
        .find(&caller.project, &browser.id, &replay)
        .await?;
    let scope = Scope::Replay(row.id.clone());
    let token = control
        .tokens
        .issue(&row.browser_id, &row.project_id, &scope);
    let shown = match row.state {
        Where::Kept => Shown::Video,
        Where::Finished if browser.lives => Shown::Video,
        Where::Recording if browser.lives => Shown::Later("This replay is still being recorded."),
        Where::Recording | Where::Finished => Shown::Later("This replay is being fetched."),
        Where::Lost => Shown::Lost,
    };
    let status = match shown {
        Shown::Lost => StatusCode::GONE,
        Shown::Video | Shown::Later(_) => StatusCode::OK,
    };
    let mut response = (status, Html(page(&row, &token, &shown))).into_response();
    let headers = response.headers_mut();
    let policy = HeaderValue::try_from(POLICY.as_str()).map_err(ApiError::internal)?;
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if matches!(shown, Shown::Later(_)) {
        let again = HeaderValue::from(RECORDING_RETRY.as_secs());
        headers.insert(header::REFRESH, again);
    }
    Ok(response)
}

/// What there is to be seen.
enum Shown {
    Video,
    /// Why not yet.
    Later(&'static str),
    Lost,
}

/// What is put in has no character that means anything to HTML.
fn page(row: &ReplayRow, token: &str, shown: &Shown) -> String {
    let id = &row.id;
    // The page is one level below the file.
    let source = format!("../{id}?jwt={token}");
    let (content, download) = match shown {
        Shown::Video => (
            format!(
                "<video controls autoplay muted playsinline preload=\"metadata\" src=\"{source}\"></video>"
            ),
            format!("<a href=\"{source}\" download=\"{id}.mp4\">Download</a>"),
        ),
        Shown::Later(why) => (message(why), String::new()),
        Shown::Lost => (message("This replay is lost."), String::new()),
    };
    PAGE.replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{id}}", id.as_str())
        .replace("{{started}}", &time(row.started_at))
        .replace("{{facts}}", &facts(row))
        .replace("{{download}}", &download)
        .replace("{{content}}", &content)
}

fn message(text: &str) -> String {
    format!("<p class=\"message\">{text}</p>")
}

fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn facts(row: &ReplayRow) -> String {
    let duration = row.end.duration_ms.map(|milliseconds| {
        let seconds = milliseconds / 1000;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        match hours {
            0 => format!("{minutes}:{:02}", seconds % 60),
            _ => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        }
    });
    let end = row.end.reason.map(|reason| {
        match reason {
            ReplayEndReason::Stopped => "stopped",
            ReplayEndReason::MaxDuration => "ended at its longest duration",
            ReplayEndReason::MaxSize => "ended at its largest size",
            ReplayEndReason::ScreenEnded => "ended with the screen",
            ReplayEndReason::EncoderFailed => "ended when the encoder failed",
            ReplayEndReason::DiskFull => "ended when the disk was full",
            ReplayEndReason::AgentEnded => "broken off with the browser's host",
            ReplayEndReason::Lost => "lost",
        }
        .to_owned()
    });
    let facts: Vec<String> = duration.into_iter().chain(end).collect();
    facts.iter().map(|fact| format!(" · {fact}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::ids::{BrowserId, ProjectId},
        control::store::ReplayEnd,
    };

    fn row() -> ReplayRow {
        ReplayRow {
            id: ReplayId::generate(),
            project_id: ProjectId::generate(),
            browser_id: BrowserId::generate(),
            state: Where::Kept,
            started_at: DateTime::from_timestamp(1_769_860_800, 0).unwrap(),
            end: ReplayEnd {
                finished_at: None,
                reason: Some(ReplayEndReason::MaxDuration),
                duration_ms: Some(3_725_900),
                size_bytes: Some(1),
            },
        }
    }

    #[test]
    fn every_place_of_the_page_is_filled() {
        let row = row();
        for shown in [Shown::Video, Shown::Later("Later."), Shown::Lost] {
            let page = page(&row, "t.o.k", &shown);
            assert!(!page.contains("{{"), "{page}");
            let video = format!("src=\"../{}?jwt=t.o.k\"", row.id);
            assert_eq!(page.contains(&video), matches!(shown, Shown::Video));
            assert!(page.contains("2026-01-31T12:00:00Z"), "{page}");
            assert!(
                page.contains(" · 1:02:05 · ended at its longest duration"),
                "{page}"
            );
        }
    }

    #[test]
    fn what_the_policy_allows_is_what_the_page_has() {
        let page = page(&row(), "t.o.k", &Shown::Video);
        for (tag, text) in [("style", STYLE), ("script", SCRIPT)] {
            assert!(page.contains(&format!("<{tag}>{text}</{tag}>")), "{tag}");
            let digest = BASE64_STANDARD.encode(Sha256::digest(text));
            assert!(POLICY.contains(&format!("{tag}-src 'sha256-{digest}'")));
        }
    }
}
