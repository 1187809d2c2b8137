//! `make bench` compares Berth with its alternatives (Node with playwright-core, nginx, xdotool,
//! xclip, ffmpeg, oathtool and others) in one run on one machine.
//!
//! Samples of Berth and of a baseline with a browser alternate, so that other load affects both.
//! Each drives its own Chromium, started with the same flags.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    reason = "blocking calls and unbounded queues are measured too; `pub` marks what a module offers"
)]

mod archive;
mod cdp;
mod create;
mod credential;
mod execute;
mod figures;
mod fill;
mod fixtures;
mod fleet;
mod idle;
mod image;
mod input;
mod login;
mod pool;
mod process;
mod profile;
mod proxy;
mod recording;
mod screen;
mod secret;
mod session;
mod start;
mod watch;

use figures::Figures;
use fixtures::{Agent, Dev, Result, Site};

/// The sections in the order they are measured, and the names that select them.
const SECTIONS: [&str; 21] = [
    "execute",
    "start",
    "idle",
    "session",
    "create",
    "pool",
    "proxy",
    "cdp",
    "fleet",
    "watch",
    "process",
    "input",
    "screen",
    "recording",
    "profile",
    "archive",
    "secret",
    "credential",
    "fill",
    "login",
    IMAGE,
];
/// The section that needs the VM image, and is omitted without one unless it is selected.
const IMAGE: &str = "image";

#[tokio::main(worker_threads = 1)]
async fn main() -> Result<()> {
    // `cargo bench` adds `--bench`. The other arguments are the output file and the sections.
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let out = arguments.next();
    let selected: Vec<String> = arguments.collect();
    if let Some(unknown) = selected
        .iter()
        .find(|name| !SECTIONS.contains(&name.as_str()))
    {
        let known = SECTIONS.join(", ");
        return Err(format!("unknown section {unknown}; known sections: {known}").into());
    }
    // Runs on the runtime's worker thread, which also serves the client's connections, so that no
    // call wakes another thread.
    let measuring = tokio::spawn({
        let selected = selected.clone();
        async move {
            let mut figures = Figures::default();
            let measured = measure(&mut figures, &selected).await;
            (figures, measured)
        }
    });
    let (mut figures, mut measured) = measuring.await?;
    // No task, because waits of the tests' support cannot move to another thread.
    if measured.is_ok() && is_selected(IMAGE, &selected) {
        measured = measure_image(&mut figures, &selected).await;
    }
    // Prints what was measured even if a later section failed.
    figures.print();
    if let Some(out) = out {
        figures.write(&out)?;
        println!("\n{out} has the same results as JSON");
    }
    measured
}

async fn measure(figures: &mut Figures, selected: &[String]) -> Result<()> {
    let site = Site::serve().await?;
    let agent = Agent::start().await?;
    for section in SECTIONS {
        if section == IMAGE || !is_selected(section, selected) {
            continue;
        }
        println!("==> Measuring: {section}");
        match section {
            "execute" => execute::measure(figures, &agent, &site).await?,
            "start" => {
                start::agent(figures).await?;
                let dev = Dev::start().await?;
                start::browser(figures, &dev, &agent).await?;
                dev.stop().await?;
            }
            "proxy" => {
                let dev = Dev::start().await?;
                let browser = dev.create_browser().await?;
                proxy::measure(figures, &agent, &dev, &browser).await?;
                dev.delete_browser(&browser).await?;
                dev.stop().await?;
            }
            "idle" => idle::measure(figures, &agent).await?,
            "session" => session::measure(figures).await?,
            "create" => create::measure(figures, &agent).await?,
            "pool" => pool::measure(figures, &agent).await?,
            "fleet" => fleet::measure(figures).await?,
            "cdp" => cdp::measure(figures, &agent).await?,
            "watch" => watch::measure(figures, &agent).await?,
            "process" => process::measure(figures, &agent).await?,
            "input" => input::measure(figures, &agent).await?,
            "screen" => screen::measure(figures, &agent, &site).await?,
            "recording" => recording::measure(figures, &agent, &site).await?,
            "profile" => profile::measure(figures, &agent).await?,
            "archive" => archive::measure(figures, &agent, &site).await?,
            "secret" => secret::measure(figures).await?,
            "credential" => credential::measure(figures).await?,
            "fill" => fill::measure(figures, &agent, &site).await?,
            _ => login::measure(figures, &agent).await?,
        }
    }
    agent.stop().await?;
    Ok(())
}

fn is_selected(section: &str, selected: &[String]) -> bool {
    selected.is_empty() || selected.iter().any(|name| name == section)
}

async fn measure_image(figures: &mut Figures, selected: &[String]) -> Result<()> {
    let directory = std::env::var_os("BERTH_TEST_IMAGE");
    if directory.is_none_or(|directory| directory.is_empty()) && selected.is_empty() {
        println!("==> Not measured: {IMAGE}, which needs make image");
        return Ok(());
    }
    println!("==> Measuring: {IMAGE}");
    image::measure(figures).await
}
