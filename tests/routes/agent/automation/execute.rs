//! `POST /automation/execute`

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    requests::wrong_fields,
    scripts::{error_of, execute, idle_counts, metric, result_of, start, titles, workers},
    wait::until,
};

#[tokio::test]
async fn results_output_and_errors_of_a_script_are_returned() {
    let agent = Start::headless().ready().await;
    for (code, result) in [
        ("return 1", json!(1)),
        ("", Value::Null),
        ("return", Value::Null),
        ("return undefined", Value::Null),
        (
            "return { a: [1, 'x', null, true] }",
            json!({"a": [1, "x", null, true]}),
        ),
        (
            "interface P { n: number } const p: P = { n: 2 }; return p.n as number",
            json!(2),
        ),
        ("return await page.evaluate(() => 6 * 7)", json!(42)),
        ("return page.url()", json!("about:blank")),
        (
            "return [typeof context.pages, typeof browser.version()]",
            json!(["function", "string"]),
        ),
        ("return typeof playwright.chromium.name()", json!("string")),
        // The page is available under any name in scope.
        ("return typeof arguments[0].url()", json!("string")),
        ("return eval('pa' + 'ge').url()", json!("about:blank")),
        ("return p\\u0061ge.url()", json!("about:blank")),
    ] {
        // The empty case stands for a script of comments only. Empty code is refused.
        let code = if code.is_empty() { "// nothing" } else { code };
        assert_eq!(result_of(&agent, code).await, result, "{code}");
    }

    let answer = execute(
        &agent,
        json!({"code": "console.log('out', 1); console.error('err'); return 'done'", "more": "is ignored"}),
    )
    .await;
    assert_eq!(
        answer,
        json!({"success": true, "result": "done", "stdout": "out 1\n", "stderr": "err\n"})
    );

    let answer = execute(
        &agent,
        json!({"code": "console.log('before');\nthrow new Error('no luck')"}),
    )
    .await;
    assert_eq!(answer["success"], false);
    assert_eq!(answer["result"], Value::Null);
    assert_eq!(answer["stdout"], "before\n");
    assert!(
        answer["error"].as_str().unwrap().contains("no luck"),
        "{answer}"
    );
    assert!(
        answer["stderr"].as_str().unwrap().contains(":2:"),
        "{answer}"
    );

    let error = error_of(&agent, "await new Promise(() => {})", 1).await;
    assert!(error.contains("1 s"), "{error}");

    let alias = agent
        .post("/playwright/execute")
        .json(&json!({"code": "return 2"}));
    assert_eq!(agent.ok(alias).await["result"], 2);

    assert!(metric(&agent, "berth_automation_executes_total").await >= 12.0);
    assert!(metric(&agent, "berth_automation_execute_seconds_count").await >= 12.0);
    assert!(metric(&agent, "berth_automation_worker_wait_seconds_count").await >= 12.0);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_400_with_each_field() {
    let agent = Start::without_browser().listening().await;
    let long = "x".repeat(65);
    for (body, fields) in [
        (json!({}), vec!["code"]),
        (json!({"code": ""}), vec!["code"]),
        (json!({"code": " \n"}), vec!["code"]),
        (json!({"code": 1}), vec!["code"]),
        (
            json!({"code": "return", "timeout_sec": 0}),
            vec!["timeout_sec"],
        ),
        (
            json!({"code": "return", "timeout_sec": 301}),
            vec!["timeout_sec"],
        ),
        (
            json!({"code": "return", "timeout_sec": -1}),
            vec!["timeout_sec"],
        ),
        (
            json!({"code": "return", "timeout_sec": 1.5}),
            vec!["timeout_sec"],
        ),
        (
            json!({"code": "return", "timeout_sec": "60"}),
            vec!["timeout_sec"],
        ),
        (json!({"code": "return", "executor": ""}), vec!["executor"]),
        (
            json!({"code": "return", "executor": "a/b"}),
            vec!["executor"],
        ),
        (
            json!({"code": "return", "executor": long}),
            vec!["executor"],
        ),
        (json!({"code": "return", "executor": 5}), vec!["executor"]),
        (
            json!({"code": [], "timeout_sec": 999, "executor": "é"}),
            vec!["code", "executor", "timeout_sec"],
        ),
        (json!([]), vec!["body"]),
    ] {
        let request = agent.post("/automation/execute").json(&body);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(answer["code"], "bad_request");
        assert_eq!(wrong_fields(&answer), fields, "{body}: {answer}");
    }
    for size in [(1 << 20) + 1, 10 << 20] {
        let body = json!({"code": "/".repeat(size)});
        let (status, answer) = agent
            .answer(agent.post("/automation/execute").json(&body))
            .await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
        assert_eq!(answer["code"], "payload_too_large");
    }
    let url = agent.url("/automation/execute");
    for request in [
        agent.http.post(&url),
        agent
            .http
            .post(&url)
            .bearer_auth("another-token-of-some-agent"),
    ] {
        let (status, answer) = agent.answer(request.json(&json!({"code": "return"}))).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{answer}");
        assert_eq!(answer["code"], "unauthorized");
    }
    let (status, _) = agent.answer(agent.get("/automation/execute")).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn script_of_the_maximum_length_is_accepted() {
    let agent = Start::headless().ready().await;
    let mut code = "return 3 //".to_owned();
    code.push_str(&"x".repeat((1 << 20) - code.len()));
    assert_eq!(result_of(&agent, &code).await, 3);
    agent.stop().await;
}

#[tokio::test]
async fn script_over_the_limit_is_429_until_one_ends() {
    let agent = Start::headless()
        .with(["--max-executes", "1"])
        .ready()
        .await;
    let running = start(
        &agent,
        "await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    let request = agent
        .post("/automation/execute")
        .json(&json!({"code": "return"}));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["code"], "limit_exceeded");
    // When the caller disconnects, the script is killed and its slot is free again.
    running.abort();
    until("a free slot", async || {
        let request = agent
            .post("/automation/execute")
            .json(&json!({"code": "return 5"}));
        let (status, answer) = agent.answer(request).await;
        (status == StatusCode::OK).then(|| assert_eq!(answer["result"], 5, "{answer}"))
    })
    .await;
    idle_counts(&agent, 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn script_without_a_browser_is_503_after_a_timeout() {
    let agent = Start::headless()
        .with(["--chromium", "/bin/false"])
        .listening()
        .await;
    let request = agent
        .post("/automation/execute")
        .json(&json!({"code": "return"}));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["code"], "unavailable");
    agent.stop().await;
}

#[tokio::test]
async fn call_without_warm_workers_waits_for_a_start() {
    let agent = Start::headless()
        .with(["--warm-workers", "0"])
        .ready()
        .await;
    assert_eq!(result_of(&agent, "return page.url()").await, "about:blank");
    idle_counts(&agent, 0).await;
    agent.stop().await;
}

#[tokio::test]
async fn script_that_does_not_use_the_browser_takes_no_warm_worker() {
    let agent = Start::headless()
        .with(["--warm-workers", "1"])
        .ready()
        .await;
    idle_counts(&agent, 1).await;
    let earlier = workers(&agent);
    let code = "fs.writeFileSync('file', 'content'); console.log('out'); console.error('err');
        await new Promise((resolve) => setTimeout(resolve, 5)); return fs.readFileSync('file', 'utf8')";
    let answer = execute(&agent, json!({ "code": code })).await;
    assert_eq!(
        answer,
        json!({"success": true, "result": "content", "stdout": "out\n", "stderr": "err\n"})
    );
    let endless = "console.log('before'); for (;;) {}";
    let answer = execute(&agent, json!({"code": endless, "timeout_sec": 1})).await;
    assert_eq!(answer["stdout"], "before\n");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("exceeded its timeout of 1 s"), "{error}");
    let bomb = "const all = []; for (;;) all.push(new Array(1000).fill('x'))";
    let error = error_of(&agent, bomb, 60).await;
    assert!(error.contains("out of memory"), "{error}");
    // A caller that leaves ends its script.
    let waiting = json!({"code": "await new Promise(() => {})", "timeout_sec": 300});
    let request = agent.post("/automation/execute").json(&waiting);
    let call = tokio::spawn(request.send());
    until("the script's process", async || {
        (workers(&agent).len() == earlier.len() + 1).then_some(())
    })
    .await;
    call.abort();
    idle_counts(&agent, 1).await;
    // The attached one is still there.
    let all = workers(&agent);
    let kept = all.iter().filter(|worker| earlier.contains(worker));
    assert_eq!(kept.count(), 1, "{earlier:?} {all:?}");
    agent.stop().await;
}

#[tokio::test]
async fn calls_without_a_ready_worker_wait_for_the_next_one() {
    let agent = Start::headless()
        .with(["--warm-workers", "0"])
        .ready()
        .await;
    let calls = (0..6).map(|n| {
        let agent = &agent;
        async move { assert_eq!(result_of(agent, &format!("return {n}")).await, n) }
    });
    futures::future::join_all(calls).await;
    idle_counts(&agent, 0).await;
    agent.stop().await;
}

#[tokio::test]
async fn page_is_the_tab_in_front() {
    let agent = Start::headless().ready().await;
    let open = |title: &str| {
        format!(
            "const p = await context.newPage(); await p.goto('data:text/html,<title>{title}</title>'); return await p.title()"
        )
    };
    for title in ["one", "two"] {
        assert_eq!(result_of(&agent, &open(title)).await, title);
        assert_eq!(result_of(&agent, "return await page.title()").await, title);
    }
    let to_front =
        "const one = context.pages().find(p => p.url().includes('one')); await one.bringToFront()";
    result_of(&agent, to_front).await;
    assert_eq!(result_of(&agent, "return await page.title()").await, "one");
    // A page on which scripts cannot act is not used; without a usable page, a new one opens.
    let mut front = Page::of(&agent).await;
    let new_tab = json!({"url": "chrome://newtab/"});
    front.call("Page.navigate", new_tab).await;
    let url = result_of(&agent, "return page.url()").await;
    assert!(!url.as_str().unwrap().starts_with("chrome:"), "{url}");
    assert_eq!(
        result_of(
            &agent,
            "await page.setContent('<p>hi'); return await page.innerText('p')"
        )
        .await,
        "hi"
    );
    let tabs = agent
        .ok(agent.get("/json/list"))
        .await
        .as_array()
        .unwrap()
        .len();
    result_of(&agent, "return 1").await;
    assert_eq!(
        agent
            .ok(agent.get("/json/list"))
            .await
            .as_array()
            .unwrap()
            .len(),
        tabs
    );
    agent.stop().await;
}

#[tokio::test]
async fn script_that_does_not_use_the_browser_opens_no_tab() {
    let agent = Start::headless().ready().await;
    result_of(&agent, "for (const p of context.pages()) await p.close()").await;
    assert_eq!(result_of(&agent, "return 6 * 7").await, 42);
    assert_eq!(titles(&agent).await.len(), 0);
    assert_eq!(
        result_of(&agent, "return page.url()").await,
        json!("about:blank")
    );
    assert_eq!(titles(&agent).await.len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn warm_workers_do_not_interfere_with_scripts() {
    let agent = Start::headless().ready().await;
    idle_counts(&agent, 2).await;
    let prompt = "page.on('dialog', dialog => setTimeout(() => dialog.accept('typed'), 100)); return await page.evaluate(() => prompt('?'))";
    assert_eq!(result_of(&agent, prompt).await, "typed");
    // A dialog that a script leaves open does not keep the next script from its page.
    let left = "await page.goto('data:text/html,<title>kept</title>'); await page.evaluate(() => { setTimeout(() => alert('left'), 0) })";
    result_of(&agent, left).await;
    assert_eq!(result_of(&agent, "return await page.title()").await, "kept");
    // Calls do not accumulate isolated worlds in a page.
    let count = "const session = await context.newCDPSession(page); let n = 0; \
        session.on('Runtime.executionContextCreated', () => n++); await session.send('Runtime.enable'); return n";
    let before = result_of(&agent, count).await;
    for _ in 0..10 {
        result_of(&agent, "return await page.title()").await;
    }
    assert_eq!(result_of(&agent, count).await, before);
    agent.stop().await;
}

#[tokio::test]
async fn scripts_run_with_a_display() {
    let agent: TestAgent = Start::on_screen().ready().await;
    assert_eq!(
        result_of(&agent, "await page.goto('data:text/html,<button onclick=document.title=7>x</button>'); await page.getByRole('button').click(); return await page.title()").await,
        "7"
    );
    agent.stop().await;
}
