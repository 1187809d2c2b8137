//! `/org/projects/{id_or_name}/limits`.

use super::*;

const PATH: &str = "/org/projects/p/limits";

fn limits(sessions: Option<u32>, invocations: Option<u32>) -> Value {
    json!({
        "max_concurrent_sessions": sessions,
        "max_concurrent_invocations": invocations,
        "max_pooled_sessions": null,
    })
}

#[tokio::test]
async fn limits_are_set_and_removed() {
    let dev = Dev::start().await;
    let created = project(&dev, "p").await;
    assert_eq!(dev.get(PATH).await.body, limits(None, None));
    let by_id = format!("{}/limits", path(id(&created)));
    for (change, expected) in [
        (json!({"max_concurrent_sessions": 1}), limits(Some(1), None)),
        (
            json!({"max_concurrent_invocations": 1_000_000}),
            limits(Some(1), Some(1_000_000)),
        ),
        (json!({}), limits(Some(1), Some(1_000_000))),
        (
            json!({"max_concurrent_sessions": null, "max_pooled_sessions": null}),
            limits(Some(1), Some(1_000_000)),
        ),
        (
            json!({"max_concurrent_sessions": 1_000_000, "max_concurrent_invocations": 0}),
            limits(Some(1_000_000), None),
        ),
        (json!({"max_concurrent_sessions": 0}), limits(None, None)),
    ] {
        let changed = dev.patch(PATH, change.clone()).await;
        assert_eq!(
            (changed.status, &changed.body),
            (StatusCode::OK, &expected),
            "{change}"
        );
        assert_eq!(dev.get(&by_id).await.body, expected);
        let deprecated = format!("/projects/{}/limits", id(&created));
        assert_eq!(dev.get(&deprecated).await.body, expected);
        assert_eq!(dev.patch(&deprecated, json!({})).await.body, expected);
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_limit_names_each_invalid_field() {
    let dev = Dev::start().await;
    project(&dev, "p").await;
    for (change, fields) in [
        (
            json!({"max_concurrent_sessions": 1_000_001, "max_concurrent_invocations": -1}),
            &["max_concurrent_invocations", "max_concurrent_sessions"][..],
        ),
        (
            json!({"max_concurrent_sessions": "1"}),
            &["max_concurrent_sessions"],
        ),
        (
            json!({"max_concurrent_sessions": 1.5}),
            &["max_concurrent_sessions"],
        ),
        (
            json!({"max_concurrent_sessions": u64::MAX}),
            &["max_concurrent_sessions"],
        ),
        (
            json!({"max_concurrent_sessions": 1, "max_concurrent_invocations": true}),
            &["max_concurrent_invocations"],
        ),
        (json!([]), &["body"]),
    ] {
        let refused = dev.patch(PATH, change.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{change}");
    }
    for pooled in [json!(0), json!(1)] {
        let change = json!({"max_concurrent_sessions": 1, "max_pooled_sessions": pooled});
        let refused = dev.patch(PATH, change).await;
        refused.assert_error(400, "unsupported_field");
        assert_eq!(refused.bad_fields(), ["max_pooled_sessions"]);
    }
    assert_eq!(dev.get(PATH).await.body, limits(None, None));
    dev.finish().await;
}

#[tokio::test]
async fn parallel_creations_reach_the_limit_of_the_project_exactly() {
    let dev = Dev::start().await;
    let limited = project(&dev, "p").await;
    dev.patch(PATH, json!({"max_concurrent_sessions": 2})).await;
    let create = || {
        let request = selecting(&dev, &limited, Method::POST, "/browsers");
        Answer::of(request.json(&json!({"headless": true})))
    };
    let answers = futures::future::join_all((0..6).map(|_| create())).await;
    let (created, refused): (Vec<Answer>, Vec<Answer>) = answers
        .into_iter()
        .partition(|answer| answer.status == StatusCode::CREATED);
    assert_eq!(created.len(), 2);
    for answer in &refused {
        answer.assert_error(429, "limit_exceeded");
        assert_eq!(answer.header("retry-after"), "5");
    }
    // Other projects are not affected.
    dev.browser(json!({})).await;

    let ended = created[0].body["session_id"].as_str().unwrap();
    let ended = selecting(
        &dev,
        &limited,
        Method::DELETE,
        &format!("/browsers/{ended}"),
    );
    assert_eq!(Answer::of(ended).await.status, StatusCode::NO_CONTENT);
    assert_eq!(create().await.status, StatusCode::CREATED);
    create().await.assert_error(429, "limit_exceeded");
    dev.patch(PATH, json!({"max_concurrent_sessions": 0})).await;
    assert_eq!(create().await.status, StatusCode::CREATED);
    dev.finish().await;
}

#[tokio::test]
async fn bound_key_reads_the_limits_of_its_project_and_changes_none() {
    let dev = Dev::start().await;
    let own = project(&dev, "p").await;
    project(&dev, "other").await;
    let key = key_of(&dev, &own).await;
    let as_bound = |method: Method, path: &str| dev.anonymous(method, path).bearer_auth(&key);
    let read = Answer::of(as_bound(Method::GET, PATH)).await;
    assert_eq!(read.body, limits(None, None));
    let change = json!({"max_concurrent_sessions": 5});
    Answer::of(as_bound(Method::PATCH, PATH).json(&change))
        .await
        .assert_error(403, "forbidden");
    for unknown in ["other", "missing", UNKNOWN] {
        let path = format!("/org/projects/{unknown}/limits");
        Answer::of(as_bound(Method::GET, &path))
            .await
            .assert_error(404, "not_found");
        Answer::of(as_bound(Method::PATCH, &path).json(&change))
            .await
            .assert_error(404, "not_found");
    }
    for unknown in ["missing", UNKNOWN] {
        let path = format!("/org/projects/{unknown}/limits");
        dev.get(&path).await.assert_error(404, "not_found");
        dev.patch(&path, change.clone())
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(dev.get(PATH).await.body, limits(None, None));
    dev.finish().await;
}
