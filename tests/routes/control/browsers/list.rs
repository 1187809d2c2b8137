//! `GET /browsers`.

use serde_json::{Value, json};

use super::id;
use crate::support::dev::{Answer, Dev};

fn names(response: &Answer) -> Vec<&str> {
    let browsers = response.body.as_array().expect("a list");
    browsers
        .iter()
        .map(|b| b["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn list_filters_by_state_text_tag_and_page() {
    let dev = Dev::start().await;
    let tags = |pairs: &[(&str, &str)]| -> Value {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), json!(v)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    dev.browser(json!({"name": "one_a", "tags": tags(&[("team", "red"), ("n", "1")])}))
        .await;
    let two = dev
        .browser(json!({"name": "Two", "tags": tags(&[("team", "red")])}))
        .await;
    dev.browser(json!({"name": "oneXa", "tags": tags(&[("team", "blue")])}))
        .await;
    dev.delete("/browsers/Two").await;

    for (query, expected) in [
        ("", &["oneXa", "one_a"][..]),
        ("status=active", &["oneXa", "one_a"]),
        ("status=deleted", &["Two"]),
        ("status=all", &["oneXa", "Two", "one_a"]),
        ("query=ONE", &["oneXa", "one_a"]),
        // The wildcards of SQL are plain characters.
        ("query=one_", &["one_a"]),
        ("query=%25", &[]),
        ("tags[team]=red", &["one_a"]),
        ("tags[team]=red&tags[n]=1&status=all", &["one_a"]),
        ("tags[team]=red&status=all", &["Two", "one_a"]),
        ("tags%5Bteam%5D=blue", &["oneXa"]),
        ("tags[team]=green", &[]),
        ("limit=1", &["oneXa"]),
        ("limit=1&offset=1", &["one_a"]),
        ("offset=2", &[]),
    ] {
        assert_eq!(
            names(&dev.get(&format!("/browsers?{query}")).await),
            expected,
            "{query}"
        );
    }
    let by_id = dev
        .get(&format!("/browsers?status=all&query={}", id(&two)))
        .await;
    assert_eq!(names(&by_id), ["Two"]);
    let first = dev.get("/browsers?limit=1").await;
    assert_eq!(
        (first.header("x-has-more"), first.header("x-next-offset")),
        ("true", "1")
    );
    let last = dev.get("/browsers?limit=1&offset=1").await;
    assert_eq!(
        (last.header("x-has-more"), last.header("x-next-offset")),
        ("false", "0")
    );
    dev.finish().await;
}
