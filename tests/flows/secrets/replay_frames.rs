//! Frames of replays: a value that is filled is in none, also while the page shows it to its user.
//! The same comparison finds the value where a page shows it in plain text.

use std::fs;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::Dev, login_site::LoginSite, painter::Image, replays::directory_of, video::part_of_frames,
    wait::until,
};

/// Each character is wide and has many edges, unlike a dot or nothing.
const PASSWORD: &str = "WMKXRBHN";
/// The part of the screen with the field: left, top, width and height.
const FIELD: [u32; 4] = [40, 40, CHARACTER * 8, 80];
/// The width of a character in pixels.
const CHARACTER: u32 = 29;

/// The characters of the field in an image: red, green and blue of their pixels.
struct FieldImage(Vec<Vec<u8>>);

impl FieldImage {
    fn of(pixels: &[u8]) -> Self {
        let rows = pixels.chunks_exact((FIELD[2] * 3) as usize);
        let mut characters = vec![Vec::new(); PASSWORD.len()];
        for row in rows {
            let parts = row.chunks_exact((CHARACTER * 3) as usize);
            for (character, part) in characters.iter_mut().zip(parts) {
                character.extend_from_slice(part);
            }
        }
        Self(characters)
    }

    /// Returns the mean absolute difference of each character from that of another image.
    fn differences(&self, other: &Self) -> Vec<f64> {
        let pairs = self.0.iter().zip(&other.0);
        pairs
            .map(|(one, other)| {
                let differences = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
                differences.map(f64::from).sum::<f64>() / one.len() as f64
            })
            .collect()
    }
}

fn least(differences: &[f64]) -> f64 {
    differences.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(differences: &[f64]) -> f64 {
    differences.iter().copied().fold(0.0, f64::max)
}

/// A browser with the field.
struct Recorded<'a> {
    dev: &'a Dev,
    browser: Value,
    base: String,
}

impl Recorded<'_> {
    async fn post(&self, path: &str, body: Value, expected: StatusCode) -> Value {
        let answer = self.dev.post(&format!("{}/{path}", self.base), body).await;
        assert_eq!(answer.status, expected, "{path}: {}", answer.body);
        answer.body
    }

    async fn execute(&self, code: &str) {
        let run = json!({ "code": code });
        let run = self.post("automation/execute", run, StatusCode::OK).await;
        assert_eq!(run["success"], true, "{run}");
    }

    async fn screenshot(&self) -> FieldImage {
        let [x, y, width, height] = FIELD;
        let region = json!({"region": {"x": x, "y": y, "width": width, "height": height}});
        let path = format!("{}/computer/screenshot", self.base);
        let request = self.dev.request(Method::POST, &path).json(&region);
        let image = request.send().await.unwrap();
        assert_eq!(image.status(), StatusCode::OK);
        FieldImage::of(Image::of_png(&image.bytes().await.unwrap()).pixels())
    }

    /// Waits until the field is drawn, and returns its image.
    async fn empty_field(&self) -> FieldImage {
        until("an empty field", async || {
            let image = self.screenshot().await;
            let is_white = image.0.iter().flatten().all(|color| *color == u8::MAX);
            is_white.then_some(image)
        })
        .await
    }

    /// Waits until the field differs from the images before, and returns its image.
    async fn changed_from(&self, before: &[&FieldImage]) -> FieldImage {
        until("another image of the field", async || {
            let [image, next] = [self.screenshot().await, self.screenshot().await];
            let is_still = image.0 == next.0;
            let mut before = before.iter();
            let is_new = before.all(|before| least(&image.differences(before)) > 1.0);
            (is_still && is_new).then_some(image)
        })
        .await
    }

    /// Records while `act` runs, and until its result is in the file. Returns the frames.
    async fn record<T>(&self, act: impl AsyncFnOnce() -> T) -> (T, Vec<FieldImage>) {
        let replay = json!({"framerate": 20});
        let replay = self.post("replays", replay, StatusCode::CREATED).await;
        let id = replay["replay_id"].as_str().unwrap();
        let part = directory_of(self.dev, &self.browser).join(format!("{id}.part.mp4"));
        let recorded = || fs::metadata(&part).map_or(0, |part| part.len());
        let result = act().await;
        // The encoder writes a frame when the next one arrives, and one from before may be on its
        // way.
        for _ in 0..3 {
            let before = recorded();
            until("more to be recorded", async || {
                (recorded() > before).then_some(())
            })
            .await;
        }
        let stop = format!("replays/{id}/stop");
        self.post(&stop, json!({}), StatusCode::OK).await;
        let path = format!("{}/replays/{id}", self.base);
        let video = self.dev.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(video.status(), StatusCode::OK);
        let file = tempfile::Builder::new().suffix(".mp4").tempfile().unwrap();
        fs::write(file.path(), video.bytes().await.unwrap()).unwrap();
        let frames = part_of_frames(file.path(), FIELD).into_iter();
        (
            result,
            frames.map(|pixels| FieldImage::of(&pixels)).collect(),
        )
    }
}

#[tokio::test]
async fn filled_value_is_in_no_frame_of_a_replay() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    let values = json!({ "password": PASSWORD });
    let credential = json!({"name": "shop", "domain": "localhost", "values": values});
    let created = dev.post("/credentials", credential).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let url = format!("{}/large", site.url);
    let browser =
        json!({"start_url": url, "kiosk_mode": true, "viewport": {"width": 640, "height": 480}});
    let browser = dev.post("/browsers", browser).await.body;
    let recorded = Recorded {
        dev: &dev,
        base: format!("/browsers/{}", browser["session_id"].as_str().unwrap()),
        browser,
    };
    let pointer = json!({"x": 600, "y": 400});
    recorded
        .post("computer/move_mouse", pointer, StatusCode::OK)
        .await;
    let empty = recorded.empty_field().await;

    let (dots, frames_of_fill) = recorded
        .record(async || {
            let fill = json!({"credential": "shop"});
            let filled = recorded
                .post("credentials/fill", fill, StatusCode::OK)
                .await;
            assert_eq!(filled["fields"][0]["outcome"], "filled", "{filled}");
            // Without the mask, Chromium would draw its text.
            let shows = "await page.locator('input').evaluate(it => it.type = 'text')";
            recorded.execute(shows).await;
            recorded.changed_from(&[&empty]).await
        })
        .await;
    let (plain, frames_of_text) = recorded
        .record(async || {
            let show = format!(
                "await page.goto('{url}'); \
                 await page.locator('input').evaluate(it => it.type = 'text'); \
                 await page.fill('input', '{PASSWORD}')"
            );
            recorded.execute(&show).await;
            recorded.changed_from(&[&empty, &dots]).await
        })
        .await;

    // How much a character that is not shown differs at least from one that is.
    let hidden = [&empty, &dots].map(|image| least(&image.differences(&plain)));
    let margin = hidden[0].min(hidden[1]);
    assert!(
        margin > 16.0,
        "the characters are not recognizable: {hidden:?}"
    );
    let shows =
        |frame: &FieldImage, image: &FieldImage| greatest(&frame.differences(image)) < margin / 4.0;
    assert!(frames_of_text.iter().any(|frame| shows(frame, &plain)));
    assert!(frames_of_fill.iter().any(|frame| shows(frame, &dots)));
    for frame in &frames_of_fill {
        let differences = frame.differences(&plain);
        assert!(
            least(&differences) > margin / 2.0,
            "{differences:?} of {margin}"
        );
    }
    dev.finish().await;
}
