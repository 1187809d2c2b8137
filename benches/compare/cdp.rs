//! The cost per message of CDP through the agent, and through control and the agent, compared with
//! a direct connection to a Chromium of the same flags, which shows the same page.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use http::header::AUTHORIZATION;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, protocol::WebSocketConfig},
};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, BareChromium, Dev, Result},
};

const DIRECT: &str = "Chromium directly";
const ROUND_TRIPS: usize = 2000;
/// The number of messages sent before the first response is awaited.
const BURST: usize = 500;
const ROUNDS: usize = 200;
const READ_BUFFER: usize = 8 << 10;

pub struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Self> {
        let mut request = url.into_client_request()?;
        if let Some(token) = token {
            request
                .headers_mut()
                .insert(AUTHORIZATION, format!("Bearer {token}").parse()?);
        }
        // The client clears its buffer before every read, which with the default size would take
        // longer than all else that it does.
        let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER);
        let connected = connect_async_with_config(request, Some(config), false);
        Ok(Self(connected.await?.0))
    }

    async fn send(&mut self, id: usize) -> Result<()> {
        Ok(self
            .0
            .send(Message::text(format!(
                r#"{{"id":{id},"method":"Browser.getVersion"}}"#
            )))
            .await?)
    }

    async fn response(&mut self) -> Result<()> {
        loop {
            match self.0.next().await.ok_or("the connection was closed")?? {
                Message::Text(text) if text.contains("\"id\":") => return Ok(()),
                _ => {}
            }
        }
    }

    pub async fn round_trip(&mut self, id: usize) -> Result<Duration> {
        let start = Instant::now();
        self.send(id).await?;
        self.response().await?;
        Ok(start.elapsed())
    }

    /// Returns the responses per second with many messages in flight.
    async fn burst(&mut self) -> Result<f64> {
        let start = Instant::now();
        for id in 0..BURST {
            self.send(id).await?;
        }
        for _ in 0..BURST {
            self.response().await?;
        }
        Ok(BURST as f64 / start.elapsed().as_secs_f64())
    }
}

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    // The page of the other two.
    agent.show("about:blank").await?;
    let dev = Dev::start().await?;
    let browser = dev.create_browser().await?;
    let chromium = BareChromium::start(agent).await?;
    let direct = &chromium.ws_url;
    let (url, token) = agent.cdp_request();
    let through_agent = Client::connect(&url, token.as_deref()).await?;
    compare(figures, direct, "through the agent", through_agent).await?;
    let through_control = Client::connect(&browser.cdp_ws_url, None).await?;
    compare(
        figures,
        direct,
        "through control and agent",
        through_control,
    )
    .await?;
    chromium.stop().await?;
    dev.delete_browser(&browser).await?;
    dev.stop().await
}

async fn compare(
    figures: &mut Figures,
    direct: &str,
    name: &str,
    mut client: Client,
) -> Result<()> {
    let mut direct = Client::connect(direct, None).await?;
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for id in 0..ROUND_TRIPS {
        berth.add_us(client.round_trip(id).await?);
        baseline.add_us(direct.round_trip(id).await?);
    }
    figures.compare(
        format!("CDP round trip {name}"),
        "us",
        berth,
        DIRECT,
        baseline,
    );

    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        berth.add(client.burst().await?);
        baseline.add(direct.burst().await?);
    }
    figures.compare(
        format!("CDP messages {name}"),
        "per s",
        berth,
        DIRECT,
        baseline,
    );
    Ok(())
}
