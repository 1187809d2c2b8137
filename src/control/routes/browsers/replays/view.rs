//! `/browsers/{id}/replays/{replay_id}/view`.

use std::sync::LazyLock;

use axum::response::Response;
use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderValue, StatusCode, Uri, header::REFRESH};

use super::{RECORDING_RETRY_DELAY, ReplayContext, TAG};
use crate::{
    api::{ids::ReplayId, replays::ReplayEndReason},
    control::{
        replays::state::State,
        routes::authentication::{RequestCredential, token_in},
        session_token::Scope,
        store::ReplayRow,
    },
    http::{ApiResult, HtmlPage, Path},
};

const DOCUMENT: &str = include_str!("player/player.html");
const STYLE: &str = include_str!("player/player.css");
const SCRIPT: &str = include_str!("player/player.js");

/// The player page. Its content security policy allows videos of this server only.
static PAGE: LazyLock<HtmlPage> = LazyLock::new(|| {
    let policy = "media-src 'self'; frame-ancestors 'none'";
    HtmlPage::new(DOCUMENT, STYLE, SCRIPT, policy)
});

/// Open the player of a replay
///
/// Returns a web page that plays the replay. The `replay_view_url` of a replay is the URL of this
/// page, with a token that is valid for this replay only.
#[utoipa::path(
    get,
    path = "/browsers/{id}/replays/{replay_id}/view",
    operation_id = "open_replay_player",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("replay_id" = ReplayId, Path, description = "The id of the replay", example = "rep_01kgc3v7e8r9t0w1x2y3z4a5b6"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/html", headers(("Refresh" = u64, description = "Seconds after which to load the page again, while the replay is recorded or fetched"))),
        (status = 410, body = String, content_type = "text/html", description = "The recording is lost"),
    )
)]
pub(crate) async fn view(
    context: ReplayContext,
    Path((id, replay)): Path<(String, ReplayId)>,
    url: Uri,
) -> ApiResult<Response> {
    let (browser, row) = context.find_replay(&id, &replay).await?;
    let credential = &context.forwarder.principal.credential;
    let token = match (credential, token_in(&url)) {
        // A link expires when it was meant to: viewing the page does not issue a new token.
        (
            RequestCredential::SessionToken {
                scope: Scope::Replay(_),
                ..
            },
            Some(token),
        ) => token,
        _ => context.replay_token(&row),
    };
    let content = match row.state {
        State::Stored => Content::Video,
        State::Finished if browser.is_active => Content::Video,
        State::Recording if browser.is_active => {
            Content::Pending("This replay is still being recorded.")
        }
        State::Recording | State::Finished => Content::Pending("This replay is being fetched."),
        State::Lost => Content::Lost,
    };
    let mut response = page(&row, &token, &content);
    if matches!(content, Content::Lost) {
        *response.status_mut() = StatusCode::GONE;
    }
    if matches!(content, Content::Pending(_)) {
        let delay = HeaderValue::from(RECORDING_RETRY_DELAY.as_secs());
        response.headers_mut().insert(REFRESH, delay);
    }
    Ok(response)
}

/// The content of the page.
enum Content {
    Video,
    /// The video is not available yet, for this reason.
    Pending(&'static str),
    Lost,
}

/// Renders the page. No inserted value contains characters that HTML would interpret.
fn page(row: &ReplayRow, token: &str, content: &Content) -> Response {
    let id = &row.id;
    // The page is one level below the file.
    let source = format!("../{id}?jwt={token}");
    let (element, download) = match content {
        Content::Video => (
            format!(
                "<video controls autoplay muted playsinline preload=\"metadata\" src=\"{source}\"></video>"
            ),
            format!("<a href=\"{source}\" download=\"{id}.mp4\">Download</a>"),
        ),
        Content::Pending(reason) => (message(reason), String::new()),
        Content::Lost => (message("This replay is lost."), String::new()),
    };
    PAGE.response(&[
        ("id", id.as_str()),
        ("started", &time(row.started_at)),
        ("facts", &facts(row)),
        ("download", &download),
        ("content", &element),
    ])
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
            ReplayEndReason::MaxDuration => "reached its maximum duration",
            ReplayEndReason::MaxSize => "reached its maximum size",
            ReplayEndReason::ScreenEnded => "ended with the screen",
            ReplayEndReason::EncoderFailed => "ended because the encoder failed",
            ReplayEndReason::DiskFull => "ended because the disk was full",
            ReplayEndReason::AgentEnded => "interrupted with the browser's host",
            ReplayEndReason::Lost => "lost",
        }
        .to_owned()
    });
    let facts: Vec<String> = duration.into_iter().chain(end).collect();
    facts.iter().map(|fact| format!(" · {fact}")).collect()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

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
            state: State::Stored,
            started_at: DateTime::from_timestamp(1_769_860_800, 0).unwrap(),
            end: ReplayEnd {
                finished_at: None,
                reason: Some(ReplayEndReason::MaxDuration),
                duration_ms: Some(3_725_900),
                size_bytes: Some(1),
            },
        }
    }

    #[tokio::test]
    async fn page_has_no_unfilled_placeholder() {
        let row = row();
        for content in [Content::Video, Content::Pending("Later."), Content::Lost] {
            let body = page(&row, "t.o.k", &content).into_body();
            let page = body.collect().await.unwrap().to_bytes();
            let page = String::from_utf8(page.to_vec()).unwrap();
            assert!(!page.contains("{{"), "{page}");
            let video = format!("src=\"../{}?jwt=t.o.k\"", row.id);
            assert_eq!(page.contains(&video), matches!(content, Content::Video));
            assert!(page.contains("2026-01-31T12:00:00Z"), "{page}");
            assert!(
                page.contains(" · 1:02:05 · reached its maximum duration"),
                "{page}"
            );
        }
    }
}
