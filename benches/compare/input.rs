//! Mouse, keyboard and clipboard over HTTP, beside the programs one would run for each call.

use crate::figures::{Figures, Samples};
use crate::parts::{Agent, Result, Screen, until};
use serde_json::{Value, json};
use std::ops::RangeBounds;
use std::process::Stdio;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const CALLS: usize = 200;
/// For what takes the other side seconds.
const ROUNDS: usize = 3;
const MOVES: usize = 20;
const BATCHES: usize = 50;
const TYPED: usize = 1000;
/// Its title is how much is in it, once it has the keyboard and was drawn: what is typed into a new page before that, Chromium drops.
const FIELD: &str = "data:text/html,<textarea autofocus oninput='document.title = value.length' \
                     onfocus='requestAnimationFrame(() => setTimeout(() => document.title = value.length, 100))'>";
/// Where a click meets nothing that answers to it.
const SPOT: (u32, u32) = (600, 500);

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let screen = agent.screen()?;
    position(figures, agent, &screen).await?;
    click(figures, agent, &screen).await?;
    moves(figures, agent, &screen).await?;
    typing(figures, agent, &screen).await?;
    clipboard(figures, agent, &screen).await
}

async fn position(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        let told = act(agent, "get_mouse_position", &json!({})).await?;
        ours.add_us(start.elapsed());
        if !told["x"].is_u64() {
            return Err(format!("no position: {told}").into());
        }

        let start = Instant::now();
        xdotool(screen, &["getmouselocation"]).await?;
        theirs.add_us(start.elapsed());
    }
    figures.compare(
        "mouse position",
        "us",
        ours,
        "xdotool getmouselocation",
        theirs,
    );
    Ok(())
}

async fn click(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let (x, y) = SPOT;
    let (across, down) = (x.to_string(), y.to_string());
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        act(agent, "click_mouse", &json!({"x": x, "y": y})).await?;
        ours.add_us(start.elapsed());

        let start = Instant::now();
        xdotool(screen, &["mousemove", &across, &down, "click", "1"]).await?;
        theirs.add_us(start.elapsed());
    }
    figures.compare(
        "click at a place",
        "us",
        ours,
        "xdotool mousemove X Y click 1",
        theirs,
    );
    Ok(())
}

async fn moves(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let places: Vec<(usize, usize)> = (0..MOVES).map(|n| (100 + 10 * n, 200 + 5 * n)).collect();
    let actions: Vec<Value> = places
        .iter()
        .map(|(x, y)| json!({"type": "move_mouse", "move_mouse": {"x": x, "y": y}}))
        .collect();
    let batch = json!({ "actions": actions });
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..BATCHES {
        let start = Instant::now();
        act(agent, "batch", &batch).await?;
        ours.add_us(start.elapsed());

        let start = Instant::now();
        for (x, y) in &places {
            xdotool(screen, &["mousemove", &x.to_string(), &y.to_string()]).await?;
        }
        theirs.add_us(start.elapsed());
    }
    let name = format!("batch of {MOVES} moves");
    let theirs_is = format!("{MOVES} times xdotool mousemove");
    figures.compare(name, "us", ours, theirs_is, theirs);
    Ok(())
}

async fn typing(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let text: String = "The quick brown fox. "
        .chars()
        .cycle()
        .take(TYPED)
        .collect();
    // Its own delay is what its users have; without one it is at its fastest.
    let ways: [(&str, &[&str]); 2] = [
        ("xdotool type", &["type"]),
        ("xdotool type --delay 0", &["type", "--delay", "0"]),
    ];
    agent.show(FIELD).await?;
    filled(agent, ..=0).await?;
    for (theirs_is, arguments) in ways {
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            act(agent, "type", &json!({ "text": text })).await?;
            ours.add_ms(start.elapsed());
            empty(agent).await?;

            let start = Instant::now();
            xdotool(screen, &[arguments, &[&text]].concat()).await?;
            theirs.add_ms(start.elapsed());
            empty(agent).await?;
        }
        let name = format!("{TYPED} characters typed");
        figures.compare(name, "ms", ours, theirs_is, theirs);
    }
    Ok(())
}

/// Empties the field, once all that was typed is in it: the more there is, the longer Chromium takes for another character.
async fn empty(agent: &Agent) -> Result<()> {
    // A key that is down for too long on a busy machine is typed more than once by xdotool.
    filled(agent, TYPED..).await?;
    let keys = json!({ "keys": ["Ctrl+a", "Delete"] });
    act(agent, "press_key", &keys).await?;
    filled(agent, ..=0).await
}

/// Until so much is in the field. Its title is the browser's to tell, however busy the page is.
async fn filled(agent: &Agent, wanted: impl RangeBounds<usize> + Sync) -> Result<()> {
    let wanted = &wanted;
    until(move || async move {
        let tabs: Vec<Value> = serde_json::from_slice(&agent.http.get("/json/list").await?)?;
        let mut lengths = tabs
            .iter()
            .filter_map(|tab| tab["title"].as_str()?.parse().ok());
        Ok(lengths
            .any(|length: usize| wanted.contains(&length))
            .then_some(()))
    })
    .await
}

async fn clipboard(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    const TEXT: &str = "what is on the clipboard";
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        act(agent, "clipboard/write", &json!({ "text": TEXT })).await?;
        let read = act(agent, "clipboard/read", &json!({})).await?;
        ours.add_us(start.elapsed());
        if read["text"] != TEXT {
            return Err(format!("the clipboard has {read}").into());
        }

        let start = Instant::now();
        xclip_write(screen, TEXT).await?;
        let mut command = screen.command("xclip");
        command.args(["-selection", "clipboard", "-out"]);
        let read = command.output().await?;
        theirs.add_us(start.elapsed());
        if read.stdout != TEXT.as_bytes() {
            return Err("xclip has read something else".into());
        }
    }
    figures.compare(
        "clipboard written and read",
        "us",
        ours,
        "xclip, twice",
        theirs,
    );
    Ok(())
}

async fn xclip_write(screen: &Screen, text: &str) -> Result<()> {
    let mut command = screen.command("xclip");
    // It stays in the background as the owner, until somebody else is.
    command
        .args(["-selection", "clipboard", "-in"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(text.as_bytes()).await?;
    drop(stdin);
    succeeded(child.wait().await?)
}

async fn act(agent: &Agent, route: &str, body: &Value) -> Result<Value> {
    agent.http.post(&format!("/computer/{route}"), body).await
}

async fn xdotool(screen: &Screen, arguments: &[&str]) -> Result<()> {
    let mut command: Command = screen.command("xdotool");
    succeeded(
        command
            .args(arguments)
            .stdout(Stdio::null())
            .status()
            .await?,
    )
}

fn succeeded(status: std::process::ExitStatus) -> Result<()> {
    if status.success() {
        Ok(())
    } else {
        Err(format!("a program of theirs failed: {status}").into())
    }
}
