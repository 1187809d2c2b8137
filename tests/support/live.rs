//! Clients of a live view: one that implements the page's protocol, and the page in a browser.

use std::{fs, io::Cursor, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{agent::TestAgent, page::Page, wait::in_time, websocket::Client};

const HEADER: usize = 18;
const PNG: u8 = 2;
const POINTER: u8 = 3;

/// A client that decodes what it receives.
pub struct Viewer {
    client: Client,
    pub width: u32,
    pub height: u32,
    /// `0xRRGGBB`; `None` where nothing was drawn, or by a lossy image.
    pixels: Vec<Option<u32>>,
    pub frames: u32,
    pub bytes: usize,
}

/// A message of the server, decoded.
#[derive(Debug)]
pub enum ViewerEvent {
    /// A complete frame, to be acknowledged with its sequence number.
    Frame(u32),
    Message(Value),
    Pointer,
    Closed(u16, String),
}

impl Viewer {
    pub async fn connect(url: &str) -> Self {
        Self::of(Client::connect(url).await)
    }

    pub async fn try_connect(url: &str) -> Result<Self, Error> {
        Client::try_connect(url).await.map(Self::of)
    }

    fn of(client: Client) -> Self {
        Self {
            client,
            width: 0,
            height: 0,
            pixels: Vec::new(),
            frames: 0,
            bytes: 0,
        }
    }

    pub async fn send(&mut self, message: Value) {
        self.client.send_text(message.to_string()).await;
    }

    pub async fn acknowledge(&mut self, sequence: u32) {
        self.send(json!({"type": "seen", "sequence": sequence}))
            .await;
    }

    /// Returns the next event. Parts of frames are drawn and not returned.
    pub async fn next(&mut self) -> ViewerEvent {
        loop {
            match self.client.next_message().await {
                Ok(Message::Text(text)) => {
                    let message = serde_json::from_str(text.as_str()).expect("JSON");
                    return ViewerEvent::Message(message);
                }
                Ok(Message::Binary(image)) => match self.draw(&image) {
                    Drawn::Part => {}
                    Drawn::Pointer => return ViewerEvent::Pointer,
                    Drawn::Frame(sequence) => {
                        self.frames += 1;
                        return ViewerEvent::Frame(sequence);
                    }
                },
                Ok(other) => panic!("{other:?}"),
                Err((code, reason)) => return ViewerEvent::Closed(code, reason),
            }
        }
    }

    /// Returns the next message of a type.
    pub async fn message(&mut self, kind: &str) -> Value {
        self.message_when(kind, |_| true).await
    }

    /// Returns the next message of a type that matches; acknowledges frames meanwhile.
    pub async fn message_when(&mut self, kind: &str, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.next().await {
                ViewerEvent::Message(message) if message["type"] == kind && matches(&message) => {
                    return message;
                }
                ViewerEvent::Closed(code, reason) => panic!("closed with {code}: {reason}"),
                ViewerEvent::Frame(sequence) => self.acknowledge(sequence).await,
                ViewerEvent::Message(_) | ViewerEvent::Pointer => {}
            }
        }
    }

    /// Returns the sequence number of the next frame and does not acknowledge it.
    pub async fn frame(&mut self) -> u32 {
        loop {
            match self.next().await {
                ViewerEvent::Frame(sequence) => return sequence,
                ViewerEvent::Closed(code, reason) => panic!("closed with {code}: {reason}"),
                ViewerEvent::Message(_) | ViewerEvent::Pointer => {}
            }
        }
    }

    /// Acknowledges frames until the screen matches.
    pub async fn watch_until(&mut self, description: &str, matches: impl Fn(&Self) -> bool) {
        let watching = async {
            while !matches(self) {
                let sequence = self.frame().await;
                self.acknowledge(sequence).await;
            }
        };
        in_time(description, watching).await;
    }

    pub fn at(&self, x: u32, y: u32) -> Option<u32> {
        let at = (y * self.width + x) as usize;
        self.pixels.get(at).copied().flatten()
    }

    /// Reads until the connection ends; returns the close code and reason.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let ViewerEvent::Closed(code, reason) = self.next().await {
                return (code, reason);
            }
        }
    }

    fn draw(&mut self, image: &[u8]) -> Drawn {
        self.bytes += image.len();
        let (header, image) = image.split_at(HEADER);
        let number = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
        if header[0] == POINTER {
            return Drawn::Pointer;
        }
        let (screen_width, screen_height) = (number(10), number(12));
        if (self.width, self.height) != (screen_width, screen_height) {
            (self.width, self.height) = (screen_width, screen_height);
            self.pixels = vec![None; (screen_width * screen_height) as usize];
        }
        let (left, top, width, height) = (number(2), number(4), number(6), number(8));
        assert!(left + width <= screen_width && top + height <= screen_height);
        let colors = (header[0] == PNG).then(|| decode(image));
        for y in 0..height {
            for x in 0..width {
                let from = (y * width + x) as usize * 3;
                let color = colors.as_ref().map(|colors| {
                    u32::from_be_bytes([0, colors[from], colors[from + 1], colors[from + 2]])
                });
                self.pixels[((top + y) * screen_width + left + x) as usize] = color;
            }
        }
        if header[1] & 1 == 0 {
            return Drawn::Part;
        }
        Drawn::Frame(u32::from_be_bytes(
            header[14..HEADER].try_into().expect("four bytes"),
        ))
    }
}

enum Drawn {
    Part,
    Pointer,
    Frame(u32),
}

/// Decodes a PNG to RGB.
fn decode(png: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(Cursor::new(png))
        .read_info()
        .expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("of a size")];
    let info = reader.next_frame(&mut pixels).expect("an image");
    assert_eq!(info.color_type, png::ColorType::Rgb);
    pixels
}

/// A screenshot of a page. `BERTH_TEST_PICTURES` names a directory to keep screenshots in.
pub struct Photo {
    width: usize,
    pixels: Vec<u8>,
}

impl Photo {
    pub async fn take(page: &mut Page, name: &str) -> Self {
        let taken = page
            .call("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        Self::of(&taken["data"], name)
    }

    /// Decodes a PNG in base64.
    pub fn of(image: &Value, name: &str) -> Self {
        let png = STANDARD
            .decode(image.as_str().expect("an image"))
            .expect("base64");
        if let Some(directory) = std::env::var_os("BERTH_TEST_PICTURES") {
            let directory = Path::new(&directory);
            fs::create_dir_all(directory).expect("a directory");
            fs::write(directory.join(format!("{name}.png")), &png).expect("it can be written");
        }
        let mut reader = png::Decoder::new(Cursor::new(&png))
            .read_info()
            .expect("a PNG");
        let (width, size) = (
            reader.info().width as usize,
            reader.output_buffer_size().expect("of a size"),
        );
        let mut pixels = vec![0; size];
        let info = reader.next_frame(&mut pixels).expect("an image");
        let samples = info.color_type.samples();
        let pixels = pixels
            .chunks_exact(samples)
            .flat_map(|pixel| pixel[..3].to_vec())
            .collect();
        Self { width, pixels }
    }

    /// Returns the fraction of the pixels that are similar to the colour.
    pub fn fraction_of(&self, color: [u8; 3]) -> f64 {
        let pixels = self.pixels.as_chunks::<3>().0;
        let is_alike = |pixel: &&[u8; 3]| {
            let mut pairs = pixel.iter().zip(color);
            pairs.all(|(a, b)| a.abs_diff(b) < 40)
        };
        pixels.iter().filter(is_alike).count() as f64 / pixels.len() as f64
    }

    /// Returns red, green and blue.
    pub fn at(&self, x: u32, y: u32) -> [u8; 3] {
        let at = (y as usize * self.width + x as usize) * 3;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

/// Opens a URL in the agent's front tab.
pub async fn open(agent: &TestAgent, url: &str) -> Page {
    let mut page = Page::of(agent).await;
    go(&mut page, url).await;
    page
}

async fn go(page: &mut Page, url: &str) {
    page.call("Page.navigate", json!({"url": url})).await;
    page.until("document.readyState + location.href", |state| {
        state == &Value::from(format!("complete{url}"))
    })
    .await;
}

/// Records in `sent` the messages that the page sends on its connection, `connection`.
const NOTE: &str = "window.sent = []; const send = WebSocket.prototype.send; \
    WebSocket.prototype.send = function (message) { window.connection = this; sent.push(JSON.parse(message)); send.call(this, message) };";

/// Opens a URL like [`open`] and records the page's messages in its `sent`. The script runs
/// before the page's own.
pub async fn open_noted(agent: &TestAgent, url: &str, script: &str) -> Page {
    let mut page = Page::of(agent).await;
    page.call("Page.enable", json!({})).await;
    let source = json!({"source": format!("{NOTE}{script}")});
    page.call("Page.addScriptToEvaluateOnNewDocument", source)
        .await;
    go(&mut page, url).await;
    page
}

/// Waits until the page of a live view shows the browser.
pub async fn until_live(page: &mut Page) {
    page.until("document.body.dataset.state", |state| state == "live")
        .await;
}
