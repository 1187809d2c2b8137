//! `make bench`: Berth measured beside what its user would run instead, in one run on one machine: Node with playwright-core, xdotool, xclip,
//! ffmpeg and others.
//!
//! Ours and theirs take turns sample by sample, so that what else the machine does hits both alike. Each drives a Chromium
//! of its own, started with the same flags.

mod archive;
mod cdp;
mod execute;
mod figures;
mod input;
mod parts;
mod process;
mod proxy;
mod recording;
mod screen;
mod start;
mod watch;

use figures::Figures;
use parts::{Agent, Dev, Result, Site};

/// What is measured, in this order; the names are also those that may be asked for.
const SECTIONS: [&str; 9] = [
    "execute",
    "start",
    "proxy",
    "watch",
    "process",
    "input",
    "screen",
    "recording",
    "archive",
];

#[tokio::main(worker_threads = 1)]
async fn main() -> Result<()> {
    // `cargo bench` adds `--bench`. Of our own there are two: where the figures go, and which sections are wanted.
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let out = arguments.next();
    let wanted: Vec<String> = arguments.collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !SECTIONS.contains(&name.as_str()))
    {
        let known = SECTIONS.join(", ");
        return Err(format!("there is no section {unknown}; there are {known}").into());
    }
    // On the runtime's own thread, where the client's connections are served too: no call hops between threads or wakes another.
    let measuring = tokio::spawn(async move {
        let mut figures = Figures::default();
        let measured = measure(&mut figures, &wanted).await;
        (figures, measured)
    });
    let (figures, measured) = measuring.await?;
    // What has been measured is worth seeing, whatever went wrong after it.
    figures.print();
    if let Some(out) = out {
        figures.write(&out)?;
        println!("\n{out} has the same figures as JSON");
    }
    measured
}

async fn measure(figures: &mut Figures, wanted: &[String]) -> Result<()> {
    let site = Site::serve().await?;
    let agent = Agent::start().await?;
    for section in SECTIONS {
        if !wanted.is_empty() && wanted.iter().all(|name| name != section) {
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
                cdp::measure(figures, &agent, &browser).await?;
                dev.delete_browser(&browser).await?;
                dev.stop().await?;
            }
            "watch" => watch::measure(figures, &agent).await?,
            "process" => process::measure(figures, &agent).await?,
            "input" => input::measure(figures, &agent).await?,
            "screen" => screen::measure(figures, &agent, &site).await?,
            "recording" => recording::measure(figures, &agent, &site).await?,
            _ => archive::measure(figures, &agent, &site).await?,
        }
    }
    agent.stop().await?;
    Ok(())
}
