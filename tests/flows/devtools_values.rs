//! Values of DevTools messages, which the agent converts between JSON and the CBOR of Chromium's
//! pipe: they are the same at both ends.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::support::{
    agent::{Start, TestAgent},
    websocket::Client,
};

/// Compares a value with the JSON text that it should have, in the page, and returns both.
const ECHO: &str = "function(value, text) {
    const expected = JSON.stringify(JSON.parse(text));
    return { same: JSON.stringify(value) === expected, value };
}";

/// The reply to a call of `ECHO`. Its value is kept as text: `serde_json` reads no lone surrogates,
/// and does not nest that deep.
#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    result: Outer<'a>,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    result: Inner<'a>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(borrow)]
    value: Echo<'a>,
}

#[derive(Deserialize)]
struct Echo<'a> {
    same: bool,
    #[serde(borrow)]
    value: &'a RawValue,
}

async fn page(agent: &TestAgent) -> Client {
    let list = agent.ok(agent.get("/json/list")).await;
    let target = list[0]["id"].as_str().unwrap();
    Client::connect(&agent.ws_url(&format!("/devtools/page/{target}"))).await
}

/// Passes a value to the page, and returns the one that comes back.
async fn echo(client: &mut Client, object: &Value, value: &str, expected: &str) -> String {
    let call = format!(
        r#"{{"id":1000,"method":"Runtime.callFunctionOn","params":{{"objectId":{object},
            "functionDeclaration":{},"returnByValue":true,
            "arguments":[{{"value":{value}}},{{"value":{}}}]}}}}"#,
        json!(ECHO),
        json!(expected),
    );
    client.send_text(call).await;
    let text = client.next_text().await;
    let start = &text[..text.floor_char_boundary(500)];
    let reply: Reply = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{start}"));
    let echo = reply.result.result.value;
    let value = &value[..value.floor_char_boundary(500)];
    assert!(echo.same, "{value}: {start}");
    echo.value.get().to_owned()
}

#[tokio::test]
async fn values_are_the_same_in_chromium_and_at_the_client() {
    let agent = Start::headless().ready().await;
    let mut client = page(&agent).await;
    let global = json!({"expression": "globalThis"});
    let global = client.call("Runtime.evaluate", global).await;
    let object = &global["result"]["result"]["objectId"];
    let every_unit: String = (0..=0xffff).map(|unit| format!("\\u{unit:04x}")).collect();
    for value in [
        "[null,true,false,[],{},\"\"]".to_owned(),
        "[0,-0,0.0,1,1.0,1e0,-1,23,24,-24,-25,255,256,65535,65536]".to_owned(),
        "[2147483647,2147483648,-2147483648,-2147483649,123456789012,9007199254740993]".to_owned(),
        "[1.5,0.1,1e21,-1e300,5e-324,2.5E-7,1e-999,9223372036854775808]".to_owned(),
        r#""\"\\\/\b\f\n\r\t\u0000\u001f\u007f<script>""#.to_owned(),
        "\"Grüße, 漢字, 😀, \u{2028}\"".to_owned(),
        r#"["\ud800","\udc00x","\udc00\ud800","\ud83d\ude00","é\ud800"]"#.to_owned(),
        r#"{"é":1,"\ud800":2,"":3,"b":4,"a":5,"😀":{"\n":6}}"#.to_owned(),
        r#"{"a":1,"b":2,"a":3}"#.to_owned(),
        format!("\"{every_unit}\""),
        format!("\"{}\"", "x".repeat(1 << 20)),
        format!("\"{}\"", "é\\n".repeat(1 << 19)),
        format!("{}{}", "[".repeat(200), "]".repeat(200)),
        format!("{}0{}", "{\"é\":".repeat(200), "}".repeat(200)),
        format!("[{}0.5]", "1,[],".repeat(50_000)),
    ] {
        let received = echo(&mut client, object, &value, &value).await;
        // The returned value is the same in another spelling.
        echo(&mut client, object, &received, &value).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn binary_data_is_base64() {
    let agent = Start::headless().ready().await;
    let mut client = page(&agent).await;
    let reply = client.call("Page.captureScreenshot", json!({})).await;
    let image = BASE64_STANDARD.decode(reply["result"]["data"].as_str().unwrap());
    let decoder = png::Decoder::new(std::io::Cursor::new(image.unwrap()));
    let mut image = decoder.read_info().unwrap();
    let mut pixels = vec![0; image.output_buffer_size().unwrap()];
    // Checks the sums of all chunks.
    image.next_frame(&mut pixels).unwrap();
    image.finish().unwrap();
    let stream = json!({"transferMode": "ReturnAsStream"});
    let reply = client.call("Page.printToPDF", stream).await;
    let handle = &reply["result"]["stream"];
    let mut document = Vec::new();
    loop {
        let read = json!({"handle": handle, "size": 1000});
        let reply = client.call("IO.read", read).await;
        assert_eq!(reply["result"]["base64Encoded"], true, "{reply}");
        let data = BASE64_STANDARD.decode(reply["result"]["data"].as_str().unwrap());
        document.extend(data.unwrap());
        if reply["result"]["eof"] == true {
            break;
        }
    }
    assert!(document.starts_with(b"%PDF-"));
    assert!(document.trim_ascii_end().ends_with(b"%%EOF"));
    agent.stop().await;
}
