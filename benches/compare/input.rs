//! Mouse, keyboard and clipboard over HTTP, compared with running xdotool or xclip for each call.

use std::{ops::RangeBounds, process::Stdio, time::Instant};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Result, Screen, until},
};

const CALLS: usize = 200;
/// The number of rounds where the baseline takes seconds.
const ROUNDS: usize = 3;
const MOVES: usize = 20;
const BATCHES: usize = 50;
const TYPED: usize = 1000;
/// The characters of a short text.
const SHORT: usize = 40;
/// The notches of a scroll.
const NOTCHES: usize = 3;
/// A page whose title is the length of its text, once it has the focus and is drawn: before that
/// Chromium drops what is typed.
const FIELD: &str = "data:text/html,<textarea autofocus oninput='document.title = value.length' \
                     onfocus='requestAnimationFrame(() => setTimeout(() => document.title = value.length, 100))'>";
/// A position without a clickable element.
const SPOT: (u32, u32) = (600, 500);

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let screen = agent.screen();
    position(figures, agent, screen).await?;
    click(figures, agent, screen).await?;
    moves(figures, agent, screen).await?;
    scroll(figures, agent, screen).await?;
    short_text(figures, agent, screen).await?;
    typing(figures, agent, screen).await?;
    clipboard(figures, agent, screen).await
}

async fn position(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        let position = run_action(agent, "get_mouse_position", &json!({})).await?;
        berth.add_us(start.elapsed());
        if !position["x"].is_u64() {
            return Err(format!("no position: {position}").into());
        }

        let start = Instant::now();
        xdotool(screen, &["getmouselocation"]).await?;
        baseline.add_us(start.elapsed());
    }
    figures.compare(
        "mouse position",
        "us",
        berth,
        "xdotool getmouselocation",
        baseline,
    );
    Ok(())
}

async fn click(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let (x, y) = SPOT;
    let (across, down) = (x.to_string(), y.to_string());
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        run_action(agent, "click_mouse", &json!({"x": x, "y": y})).await?;
        berth.add_us(start.elapsed());

        let start = Instant::now();
        xdotool(screen, &["mousemove", &across, &down, "click", "1"]).await?;
        baseline.add_us(start.elapsed());
    }
    figures.compare(
        "click at a position",
        "us",
        berth,
        "xdotool mousemove X Y click 1",
        baseline,
    );
    Ok(())
}

async fn moves(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let positions: Vec<(usize, usize)> = (0..MOVES).map(|n| (100 + 10 * n, 200 + 5 * n)).collect();
    let actions: Vec<Value> = positions
        .iter()
        .map(|(x, y)| json!({"type": "move_mouse", "move_mouse": {"x": x, "y": y}}))
        .collect();
    let batch = json!({ "actions": actions });
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..BATCHES {
        let start = Instant::now();
        run_action(agent, "batch", &batch).await?;
        berth.add_us(start.elapsed());

        let start = Instant::now();
        for (x, y) in &positions {
            xdotool(screen, &["mousemove", &x.to_string(), &y.to_string()]).await?;
        }
        baseline.add_us(start.elapsed());
    }
    let name = format!("batch of {MOVES} moves");
    let baseline_name = format!("{MOVES} times xdotool mousemove");
    figures.compare(name, "us", berth, baseline_name, baseline);
    Ok(())
}

async fn scroll(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let (x, y) = SPOT;
    let (across, down, notches) = (x.to_string(), y.to_string(), NOTCHES.to_string());
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    let scroll = json!({"x": x, "y": y, "delta_y": NOTCHES});
    // Without a delay between the notches, of which the default is 100 ms.
    let clicks = ["click", "--delay", "0", "--repeat", &notches, "5"];
    let arguments = [&["mousemove", &across, &down], &clicks[..]].concat();
    for _ in 0..CALLS {
        let start = Instant::now();
        run_action(agent, "scroll", &scroll).await?;
        berth.add_us(start.elapsed());

        let start = Instant::now();
        xdotool(screen, &arguments).await?;
        baseline.add_us(start.elapsed());
    }
    let name = format!("scroll by {NOTCHES} notches");
    figures.compare(name, "us", berth, "xdotool mousemove X Y click", baseline);
    Ok(())
}

async fn short_text(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let text = text(SHORT);
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..BATCHES {
        let start = Instant::now();
        run_action(agent, "type", &json!({ "text": text })).await?;
        berth.add_us(start.elapsed());

        let start = Instant::now();
        xdotool(screen, &["type", "--delay", "0", &text]).await?;
        baseline.add_us(start.elapsed());
    }
    let name = format!("{SHORT} characters typed");
    figures.compare(name, "us", berth, "xdotool type --delay 0", baseline);
    Ok(())
}

fn text(length: usize) -> String {
    "The quick brown fox. "
        .chars()
        .cycle()
        .take(length)
        .collect()
}

async fn typing(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    let text = text(TYPED);
    // With the default delay, and with none, which is fastest.
    let ways: [(&str, &[&str]); 2] = [
        ("xdotool type", &["type"]),
        ("xdotool type --delay 0", &["type", "--delay", "0"]),
    ];
    agent.show(FIELD).await?;
    wait_for_length(agent, ..=0).await?;
    for (baseline_name, arguments) in ways {
        let (mut berth, mut baseline) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            run_action(agent, "type", &json!({ "text": text })).await?;
            berth.add_ms(start.elapsed());
            clear_field(agent).await?;

            let start = Instant::now();
            xdotool(screen, &[arguments, &[&text]].concat()).await?;
            baseline.add_ms(start.elapsed());
            clear_field(agent).await?;
        }
        let name = format!("{TYPED} characters typed");
        figures.compare(name, "ms", berth, baseline_name, baseline);
    }
    Ok(())
}

/// Waits until all text is in the field, then empties it: Chromium needs more time per character
/// as the text grows.
async fn clear_field(agent: &Agent) -> Result<()> {
    // On a busy machine xdotool holds a key long enough to repeat it.
    wait_for_length(agent, TYPED..).await?;
    let keys = json!({ "keys": ["Ctrl+a", "Delete"] });
    run_action(agent, "press_key", &keys).await?;
    wait_for_length(agent, ..=0).await
}

/// Waits until the length of the text is in the range. The browser has the page's title even while
/// the page is busy.
async fn wait_for_length(agent: &Agent, lengths: impl RangeBounds<usize> + Sync) -> Result<()> {
    let lengths = &lengths;
    until(move || async move {
        let tabs: Vec<Value> = serde_json::from_slice(&agent.http.get("/json/list").await?)?;
        let mut titles = tabs
            .iter()
            .filter_map(|tab| tab["title"].as_str()?.parse().ok());
        Ok(titles
            .any(|length: usize| lengths.contains(&length))
            .then_some(()))
    })
    .await
}

async fn clipboard(figures: &mut Figures, agent: &Agent, screen: &Screen) -> Result<()> {
    const TEXT: &str = "clipboard content";
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        run_action(agent, "clipboard/write", &json!({ "text": TEXT })).await?;
        let read = run_action(agent, "clipboard/read", &json!({})).await?;
        berth.add_us(start.elapsed());
        if read["text"] != TEXT {
            return Err(format!("the clipboard has {read}").into());
        }

        let start = Instant::now();
        xclip_write(screen, TEXT).await?;
        let mut command = screen.command("xclip");
        command.args(["-selection", "clipboard", "-out"]);
        let read = command.output().await?;
        baseline.add_us(start.elapsed());
        if read.stdout != TEXT.as_bytes() {
            return Err("xclip read different text".into());
        }
    }
    figures.compare(
        "clipboard written and read",
        "us",
        berth,
        "xclip, twice",
        baseline,
    );
    Ok(())
}

async fn xclip_write(screen: &Screen, text: &str) -> Result<()> {
    let mut command = screen.command("xclip");
    // It stays in the background until another client takes the clipboard.
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

async fn run_action(agent: &Agent, route: &str, body: &Value) -> Result<Value> {
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
        Err(format!("a baseline program failed: {status}").into())
    }
}
