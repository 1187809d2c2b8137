//! Mouse and keyboard through control.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::dev::Dev;
use crate::support::painter::Image;

#[tokio::test]
async fn form_is_filled_in_with_mouse_and_keyboard() {
    const FORM: &str = "<input id=name style='position:fixed;left:0;top:0;width:400px;height:60px'>\
        <button style='position:fixed;left:0;top:100px;width:400px;height:60px' onclick=\"document.title = document.getElementById('name').value\">";
    let dev = Dev::start().await;
    let request = json!({"headless": false, "viewport": {"width": 1280, "height": 800}});
    let browser = dev.post("/browsers", request).await;
    assert_eq!(browser.status, 201, "{}", browser.body);
    let id = browser.body["session_id"].as_str().unwrap();
    let route = |path: &str| format!("/browsers/{id}/{path}");
    show(&dev, id, FORM).await;
    let top = script(
        &dev,
        id,
        "return page.evaluate('outerHeight - innerHeight')",
    )
    .await;
    let top = top.as_i64().unwrap();
    let click = |y: i64| json!({"type": "click_mouse", "click_mouse": {"x": 200, "y": top + y}});
    let actions = json!([
        click(30),
        {"type": "type_text", "type_text": {"text": "Zoë 漢 👍🏽"}},
        {"type": "press_key", "press_key": {"keys": ["Ctrl+a", "Ctrl+c", "End", "Ctrl+v"]}},
        click(130),
    ]);
    let answer = dev
        .post(&route("computer/batch"), json!({"actions": actions}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body["results"].as_array().unwrap().len(), 4);
    let wait = "await page.waitForFunction(() => document.title); return page.title()";
    let title = script(&dev, id, wait).await;
    assert_eq!(title, "Zoë 漢 👍🏽Zoë 漢 👍🏽");

    let at = dev
        .post(&route("computer/get_mouse_position"), json!({}))
        .await;
    assert_eq!(at.body, json!({"x": 200, "y": top + 130}));
    let off_screen = json!({"actions": [click(0), click(5000)]});
    let answer = dev.post(&route("computer/batch"), off_screen).await;
    answer.assert_error(400, "bad_request");
    assert_eq!(answer.bad_fields(), ["actions[1].click_mouse.y"]);
    dev.finish().await;
}

/// A page that records its input events with their button, key or wheel delta.
const RECORDING_PAGE: &str = "<body style='margin:0;height:100vh'><script>window.seen = []; \
    for (const type of ['mousedown', 'mouseup', 'keydown', 'wheel']) \
      addEventListener(type, event => seen.push(type + ' ' + (event.key ?? (event.deltaY || event.button))), true)</script>";

/// Runs a script in the browser, which must succeed, and returns what it returned.
async fn script(dev: &Dev, id: &str, code: &str) -> Value {
    let path = format!("/browsers/{id}/automation/execute");
    let answer = dev.post(&path, json!({"code": code})).await;
    assert_eq!(answer.body["success"], true, "{}", answer.body);
    answer.body["result"].clone()
}

/// Shows a page, and waits until it has been drawn: before that Chromium drops input.
async fn show(dev: &Dev, id: &str, page: &str) {
    let code = format!(
        "await page.setContent({}); await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))",
        json!(page)
    );
    script(dev, id, &code).await;
}

#[tokio::test]
async fn every_computer_route_works_through_control() {
    let dev = Dev::start().await;
    for headless in [false, true] {
        let request = json!({"headless": headless, "viewport": {"width": 1280, "height": 800}, "timeout_seconds": 600});
        let created = dev.post("/browsers", request).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let id = created.body["session_id"].as_str().unwrap();
        show(&dev, id, RECORDING_PAGE).await;
        let computer = async |route: &str, body: Value| {
            dev.post(&format!("/browsers/{id}/computer/{route}"), body)
                .await
        };
        for (route, body) in [
            ("move_mouse", json!({"x": 300, "y": 300})),
            (
                "click_mouse",
                json!({"x": 310, "y": 310, "button": "middle"}),
            ),
            ("scroll", json!({"x": 320, "y": 320, "delta_y": 2})),
            (
                "drag_mouse",
                json!({"path": [[300, 300], [600, 500]], "step_delay_ms": 1}),
            ),
            ("type", json!({"text": "é"})),
            ("press_key", json!({"keys": ["F9"]})),
        ] {
            let answer = computer(route, body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.body),
                (200, json!({"ok": true})),
                "{route}"
            );
        }
        let at = computer("get_mouse_position", json!({})).await;
        assert_eq!(at.body, json!({"x": 600, "y": 500}));
        // Wheel events may arrive last if Chromium lags behind.
        let code = "await page.waitForFunction(() => seen.includes('keydown F9') && seen.some(one => one.startsWith('wheel '))); \
            return page.evaluate(() => seen)";
        let seen = script(&dev, id, code).await;
        let seen: Vec<_> = seen
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let presses: Vec<_> = seen
            .iter()
            .filter(|seen| !seen.starts_with("wheel"))
            .collect();
        let expected = [
            "mousedown 1",
            "mouseup 1",
            "mousedown 0",
            "mouseup 0",
            "keydown é",
            "keydown F9",
        ];
        assert_eq!(presses, expected.iter().collect::<Vec<_>>());
        assert!(
            seen.iter().any(|seen| seen.starts_with("wheel ")),
            "{seen:?}"
        );

        let image = dev
            .request(Method::POST, &format!("/browsers/{id}/computer/screenshot"))
            .json(&json!({"region": {"x": 10, "y": 20, "width": 30, "height": 40}}))
            .send()
            .await
            .unwrap();
        assert_eq!(image.headers()["content-type"], "image/png");
        let image = Image::of_png(&image.bytes().await.unwrap());
        assert_eq!((image.width, image.height), (30, 40));

        // Routes that need a display.
        let answers = [
            computer("clipboard/write", json!({"text": "copied"})).await,
            computer("clipboard/read", json!({})).await,
            computer("cursor", json!({"hidden": true})).await,
        ];
        if headless {
            for answer in answers {
                answer.assert_error(409, "no_display");
            }
        } else {
            let answers = answers.map(|answer| (answer.status.as_u16(), answer.body));
            let ok = json!({"ok": true});
            assert_eq!(
                answers,
                [
                    (200, ok.clone()),
                    (200, json!({"text": "copied"})),
                    (200, ok)
                ]
            );
        }
    }
    dev.finish().await;
}
