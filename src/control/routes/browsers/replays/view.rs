use std::sync::LazyLock;

use axum::{extract::State, response::Response};
use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderValue, StatusCode, Uri, header::REFRESH};

use super::{RECORDING_RETRY, TAG, found, token_for};
use crate::{
    api::{ErrorBody, ids::ReplayId, replays::ReplayEndReason},
    control::{
        Control,
        replays::state::State as Where,
        routes::auth::{Credential, Principal, token_of},
        session_token::Scope,
        store::ReplayRow,
    },
    http::{ApiResult, Page, Path},
};

const DOCUMENT: &str = include_str!("player/player.html");
const STYLE: &str = include_str!("player/player.css");
const SCRIPT: &str = include_str!("player/player.js");

/// Its videos are this server's.
static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let also = "media-src 'self'; frame-ancestors 'none'";
    Page::new(DOCUMENT, STYLE, SCRIPT, also)
});

/// Open the player of a replay
///
/// Returns a web page that plays the replay. `replay_view_url` leads here, with a token that is
/// valid for this replay only.
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
        (status = 200, body = String, content_type = "text/html"),
        (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 410, body = String, content_type = "text/html", description = "The recording is lost"),
    )
)]
pub async fn view(
    State(control): State<Control>,
    principal: Principal,
    Path((id, replay)): Path<(String, ReplayId)>,
    address: Uri,
) -> ApiResult<Response> {
    let (browser, row) = found(&control, &principal, &id, &replay).await?;
    let token = match (&principal.credential, token_of(&address)) {
        // A link is good for as long as it was given for: looking at it makes no other one.
        (Credential::SessionToken(Scope::Replay(_)), Some(token)) => token,
        _ => token_for(&control, &row),
    };
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
    let mut response = page(&row, &token, &shown);
    *response.status_mut() = status;
    if matches!(shown, Shown::Later(_)) {
        let again = HeaderValue::from(RECORDING_RETRY.as_secs());
        response.headers_mut().insert(REFRESH, again);
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
fn page(row: &ReplayRow, token: &str, shown: &Shown) -> Response {
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
    PAGE.answer(&[
        ("id", id.as_str()),
        ("started", &time(row.started_at)),
        ("facts", &facts(row)),
        ("download", &download),
        ("content", &content),
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

    #[tokio::test]
    async fn every_place_of_the_page_is_filled() {
        let row = row();
        for shown in [Shown::Video, Shown::Later("Later."), Shown::Lost] {
            let body = page(&row, "t.o.k", &shown).into_body();
            let page = body.collect().await.unwrap().to_bytes();
            let page = String::from_utf8(page.to_vec()).unwrap();
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
}
