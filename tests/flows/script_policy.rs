//! Scripts that send DevTools commands themselves: they control the browser, and reach neither its
//! user's files nor other clients.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    scripts::{error_of, execute, result_of},
    spawned::exec_shell,
    websocket::Client,
};

/// Defines `refusal`, which calls a method and returns its error.
const REFUSAL: &str = "const refusal = async (session, method, params = {}) => { \
    try { await session.send(method, params); return null } catch (error) { return error.message } }; ";

async fn run(agent: &TestAgent, code: &str) -> Value {
    result_of(agent, &format!("{REFUSAL}{code}")).await
}

fn is_empty(directory: &TempDir) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
async fn download_setting_of_a_page_saves_nothing_outside_of_the_script() {
    let agent = Start::headless().ready().await;
    let outside = TempDir::new().unwrap();
    // The script listens first: then its worker sets the agent's directory once more.
    let code = format!(
        "const started = page.waitForEvent('download'); \
         await page.setContent('<a href=\"data:text/plain,content\" download=\"saved.txt\">get</a>'); \
         const session = await context.newCDPSession(page); \
         await session.send('Page.setDownloadBehavior', {{ behavior: 'allow', downloadPath: '{}' }}); \
         await page.click('a'); const download = await started; \
         await download.saveAs('own.txt').catch(() => {{}}); \
         return fs.existsSync('own.txt') && fs.readFileSync('own.txt', 'utf8')",
        outside.path().display()
    );
    assert_eq!(run(&agent, &code).await, "content");
    assert!(is_empty(&outside));
    agent.stop().await;
}

#[tokio::test]
async fn download_setting_of_a_context_outlives_the_session_that_changed_it() {
    let agent = Start::headless().ready().await;
    let outside = TempDir::new().unwrap();
    // Chromium resets what a session has set when it detaches: downloads would be saved in the
    // directory of Chromium's user.
    let code = format!(
        "const own = await browser.newContext(); \
         const browserContextId = playwright._connection.toImpl(own)._browserContextId; \
         const session = await browser.newBrowserCDPSession(); \
         await session.send('Browser.setDownloadBehavior', \
             {{ behavior: 'allow', downloadPath: '{}', browserContextId }}); \
         await session.detach(); const tab = await own.newPage(); \
         await tab.setContent('<a href=\"data:text/plain,content\" download=\"saved.txt\">get</a>'); \
         const [download] = await Promise.all([tab.waitForEvent('download'), tab.click('a')]); \
         await download.saveAs('own.txt'); return fs.readFileSync('own.txt', 'utf8')",
        outside.path().display()
    );
    assert_eq!(run(&agent, &code).await, "content");
    assert!(is_empty(&outside));
    agent.stop().await;
}

#[tokio::test]
async fn script_cannot_expose_devtools_to_later_pages() {
    let agent = Start::headless().ready().await;
    let expose = "const session = await browser.newBrowserCDPSession(); \
        const { targetInfos } = await session.send('Target.getTargets'); \
        const { targetId } = targetInfos.find(info => info.type === 'page'); \
        const message = await refusal(session, 'Target.exposeDevToolsProtocol', { targetId, bindingName: 'cdp' }); \
        await page.goto('data:text/html,<title>next</title>'); \
        return [message, await page.evaluate('typeof cdp')]";
    let refused = run(&agent, expose).await;
    let message = "cdpSession.send: Protocol error (Target.exposeDevToolsProtocol): \
        Target.exposeDevToolsProtocol is not available in a script";
    assert_eq!(refused, json!([message, "undefined"]));
    // Neither does what a script adds to new documents outlive it.
    let add = "const session = await context.newCDPSession(page); \
        await session.send('Page.enable'); \
        await session.send('Page.addScriptToEvaluateOnNewDocument', { source: 'window.added = 1' }); \
        await page.goto('data:text/html,<title>added</title>'); return await page.evaluate('typeof added')";
    assert_eq!(run(&agent, add).await, "number");
    let later = "await page.goto('data:text/html,<title>later</title>'); \
        return await page.evaluate('[typeof cdp, typeof added]')";
    assert_eq!(run(&agent, later).await, json!(["undefined", "undefined"]));
    agent.stop().await;
}

#[tokio::test]
async fn script_cannot_close_the_browser() {
    let agent = Start::headless().ready().await;
    let pid = agent.chromium_number("pid").await;
    let code = "const session = await browser.newBrowserCDPSession(); const messages = []; \
        for (const method of ['Browser.close', 'Browser.crash', 'Browser.crashGpuProcess', 'Page.crash', \
            'SystemInfo.getInfo', 'Tethering.bind', 'Target.setRemoteLocations', 'Page.inventedLater']) \
            messages.push(await refusal(session, method)); \
        const { targetInfos } = await session.send('Target.getTargets'); \
        const { targetId } = targetInfos.find(info => info.type === 'page'); \
        const { sessionId } = await session.send('Target.attachToTarget', { targetId, flatten: false }); \
        const message = JSON.stringify({ id: 1, method: 'Browser.close' }); \
        messages.push(await refusal(session, 'Target.sendMessageToTarget', { sessionId, message })); \
        for (const url of ['chrome://quit', 'chrome://restart', 'devtools://devtools/bundled/inspector.html']) \
            for (const method of ['Target.createTarget', 'Page.navigate']) \
                messages.push(await refusal(session, method, { url })); \
        messages.push(await refusal(session, 'Page.navigate', \
            { url: 'chrome://inducebrowsercrashforrealz', transitionType: 'address_bar' })); \
        return messages";
    for message in run(&agent, code).await.as_array().unwrap() {
        let message = message.as_str().unwrap_or_default();
        assert!(message.contains("not available in a script"), "{message}");
    }
    // This ends the connection of the script alone.
    result_of(&agent, "await browser.close(); return 1").await;
    let title = "await page.goto('data:text/html,<title>here</title>'); return await page.title()";
    assert_eq!(result_of(&agent, title).await, "here");
    assert_eq!(agent.chromium_number("pid").await, pid);
    agent.stop().await;
}

#[tokio::test]
async fn script_changes_no_setting_of_the_browser() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let settings = json!({"url": "chrome://settings"});
    let created = client.call("Target.createTarget", settings).await;
    let code = "const urls = browser.contexts().flatMap(context => context.pages()).map(page => page.url()); \
        for (const url of ['chrome://settings', 'about:settings', 'view-source:chrome://settings']) { \
            const tab = await context.newPage(); await tab.goto(url).catch(() => {}); \
            urls.push(await tab.evaluate('location.href + typeof chrome.settingsPrivate').catch(() => ''), tab.url()); \
            await tab.evaluate(url => { location.href = url }, url).catch(() => {}); urls.push(tab.url()) } \
        return urls";
    let urls = result_of(&agent, code).await;
    for url in urls.as_array().unwrap() {
        let url = url.as_str().unwrap();
        assert!(
            !url.starts_with("chrome:") && !url.contains("object"),
            "{urls}"
        );
    }
    let target = json!({"targetId": created["targetId"]});
    client.call("Target.closeTarget", target).await;
    agent.stop().await;
}

/// A page that writes a message to the console that is longer than the worker's socket allows.
#[tokio::test]
async fn long_event_of_a_page_does_not_end_scripts() {
    let agent = Start::headless().ready().await;
    let mut page = Page::of(&agent).await;
    let executor = json!({"code": "globalThis.kept = 'kept'; return 1", "executor": "named"});
    execute(&agent, executor).await;
    page.evaluate("console.log('y'.repeat(65 << 20)); 1").await;
    for code in ["return await page.title()", "return kept"] {
        let executor = (code == "return kept").then_some("named");
        let answer = execute(&agent, json!({"code": code, "executor": executor})).await;
        assert_eq!(answer["success"], true, "{answer}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn reply_of_100_mib_reaches_the_script() {
    let agent = Start::headless()
        .with(["--script-heap-mb", "512"])
        .ready()
        .await;
    let code = "const text = await page.evaluate(length => 'é'.repeat(length / 2) , 100 << 20); \
        return [text.length, text[0], text.at(-1)]";
    assert_eq!(run(&agent, code).await, json!([50 << 20, "é", "é"]));
    // Several at once, and events behind them.
    let code = "const lines = []; page.on('console', message => lines.push(message.text())); \
        const texts = await Promise.all([1, 2, 3].map(n => page.evaluate(n => { \
            setTimeout(() => console.log(n)); return `${n}`.repeat(40 << 20) }, n))); \
        while (lines.length < 3) await page.waitForEvent('console'); \
        return [texts.map(text => text.length), lines]";
    let expected = json!([[40 << 20, 40 << 20, 40 << 20], ["1", "2", "3"]]);
    assert_eq!(run(&agent, code).await, expected);
    agent.stop().await;
}

#[tokio::test]
async fn reply_beyond_the_memory_of_a_script_ends_it() {
    let agent = Start::headless()
        .with(["--script-heap-mb", "32"])
        .ready()
        .await;
    let code = "await page.evaluate(() => 'x'.repeat(100 << 20))";
    let error = error_of(&agent, code, 60).await;
    assert!(error.starts_with("out of memory"), "{error}");
    assert_eq!(result_of(&agent, "return 1").await, 1);
    agent.stop().await;
}

#[tokio::test]
async fn files_and_buffers_of_any_size_are_uploaded() {
    let agent = Start::headless().ready().await;
    let code = "await page.setContent('<input type=file multiple>'); \
        const sizes = async files => { await page.setInputFiles('input', files); \
            return await page.evaluate(async () => await Promise.all([...document.querySelector('input').files].map( \
                async file => [file.name, file.type, file.size, await file.slice(-3).text()]))) }; \
        fs.writeFileSync('long.bin', Buffer.alloc(60 << 20, 'abc')); fs.writeFileSync('short.txt', 'short'); \
        const buffer = (name, text) => ({ name, mimeType: 'text/csv', buffer: Buffer.from(text) }); \
        return [ \
            await sizes([buffer('a.csv', 'a,b'), buffer('b.csv', 'é')]), \
            await sizes(buffer('c.csv', 'x'.repeat(20 << 20))), \
            await sizes(['long.bin', 'short.txt']), await sizes('short.txt'), await sizes([]) ]";
    let text = "text/plain";
    let expected = json!([
        [
            ["a.csv", "text/csv", 3, "a,b"],
            ["b.csv", "text/csv", 2, "é"]
        ],
        [["c.csv", "text/csv", 20 << 20, "xxx"]],
        [
            ["long.bin", "application/octet-stream", 60 << 20, "abc"],
            ["short.txt", text, 5, "ort"]
        ],
        [["short.txt", text, 5, "ort"]],
        [],
    ]);
    assert_eq!(run(&agent, code).await, expected);
    agent.stop().await;
}

#[tokio::test]
async fn files_of_the_session_are_uploaded() {
    let agent = Start::headless().ready().await;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = directory.path().join("report.csv");
    let downloaded = agent.session_dir().join("downloads/bill.txt");
    let secret = agent.state_dir().join("secret");
    for path in [&temporary, &downloaded, &secret] {
        fs::write(path, "content").unwrap();
    }
    let code = format!(
        "await page.setContent('<input type=file multiple>'); fs.writeFileSync('own.txt', 'own'); \
         const set = async files => {{ try {{ await page.setInputFiles('input', files) }} catch (error) {{ return error.message }} \
             return await page.evaluate(async () => await Promise.all([...document.querySelector('input').files].map( \
                 async file => [file.name, file.type, await file.text()]))) }}; \
         return [await set(['{0}', 'own.txt', '{1}']), await set('{0}.missing'), await set('{2}'), await set('/etc/passwd'), \
             await set('missing.txt'), await set('/tmp/../etc/passwd')]",
        temporary.display(),
        downloaded.display(),
        secret.display()
    );
    let result = run(&agent, &code).await;
    let uploaded = json!([
        ["report.csv", "text/csv", "content"],
        ["own.txt", "text/plain", "own"],
        ["bill.txt", "text/plain", "content"],
    ]);
    assert_eq!(result[0], uploaded);
    for (index, reason) in [
        (1, "no such file or directory"),
        (2, "permission denied"),
        (3, "permission denied"),
        (4, "ENOENT"),
        (5, "permission denied"),
    ] {
        let message = result[index].as_str().unwrap_or_default();
        assert!(message.contains(reason), "{index}: {result}");
    }
    agent.stop().await;
}

/// Needs root.
#[tokio::test]
async fn files_of_isolated_programs_are_uploaded() {
    let agent = Start::headless().isolated().ready().await;
    exec_shell(&agent, "echo content > /tmp/report.txt").await;
    let code = "await page.setContent('<input type=file>'); \
        await page.setInputFiles('input', '/tmp/report.txt'); \
        return await page.evaluate(async () => await document.querySelector('input').files[0].text())";
    assert_eq!(run(&agent, code).await, "content\n");
    agent.stop().await;
}

#[tokio::test]
async fn script_uploads_only_its_own_files() {
    let agent = Start::headless().ready().await;
    let secret = agent.state_dir().join("secret");
    fs::write(&secret, "secret").unwrap();
    let code = format!(
        "fs.mkdirSync('directory/inner'); fs.writeFileSync('directory/inner/own.txt', 'own'); \
         await page.setContent('<input type=file><input type=file webkitdirectory id=all>'); \
         const session = await context.newCDPSession(page); \
         const {{ root }} = await session.send('DOM.getDocument'); \
         const {{ nodeId }} = await session.send('DOM.querySelector', {{ nodeId: root.nodeId, selector: 'input' }}); \
         const own = process.cwd() + '/directory/inner/own.txt'; \
         const read = () => page.evaluate(async () => await document.querySelector('input').files[0]?.text()); \
         const set = file => refusal(session, 'DOM.setFileInputFiles', {{ nodeId, files: [file] }}); \
         const refused = await set('{}'); const before = await read(); \
         const drag = {{ type: 'drop', x: 1, y: 1, data: {{ items: [], files: ['/etc/passwd'], dragOperationsMask: 1 }} }}; \
         const dragged = await refusal(session, 'Input.dispatchDragEvent', drag); \
         const permitted = await set(own); const after = await read(); \
         await page.setInputFiles('#all', 'directory'); \
         const all = await page.evaluate(async () => await Promise.all( \
             [...document.querySelector('#all').files].map(async file => [file.webkitRelativePath, await file.text()]))); \
         return [refused, dragged, before ?? null, permitted, after, all]",
        secret.display()
    );
    let result = run(&agent, &code).await;
    for refused in [&result[0], &result[1]] {
        let message = refused.as_str().unwrap_or_default();
        assert!(message.contains("permission denied"), "{result}");
    }
    let permitted = json!([null, null, "own", [["directory/inner/own.txt", "own"]]]);
    assert_eq!(
        result.as_array().unwrap()[2..],
        permitted.as_array().unwrap()[..]
    );
    agent.stop().await;
}
