//! A live view's other side: a client that knows the page's protocol, and the page itself in a real browser.

use std::{fs, io::Cursor, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{agent::TestAgent, page::Page, wait::in_time, websocket::Client};

const HEADER: usize = 18;
const PNG: u8 = 2;
const POINTER: u8 = 3;

/// A viewer that draws.
pub struct Viewer {
    client: Client,
    pub width: u32,
    pub height: u32,
    /// `0xRRGGBB`; nothing where nothing was drawn, or by an image that loses.
    pixels: Vec<Option<u32>>,
    pub frames: u32,
    pub bytes: usize,
}

/// What came.
#[derive(Debug)]
pub enum Came {
    /// A whole frame, which is to be acknowledged by its number.
    Frame(u32),
    Told(Value),
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

    pub async fn say(&mut self, message: Value) {
        self.client.send_text(message.to_string()).await;
    }

    pub async fn seen(&mut self, sequence: u32) {
        self.say(json!({"type": "seen", "sequence": sequence}))
            .await;
    }

    /// The next there is. What is drawn on the way is not told.
    pub async fn next(&mut self) -> Came {
        loop {
            match self.client.next_message().await {
                Ok(Message::Text(text)) => {
                    let told: Value = serde_json::from_str(text.as_str()).expect("JSON");
                    return Came::Told(told);
                }
                Ok(Message::Binary(picture)) => match self.draw(&picture) {
                    Drawn::Part => {}
                    Drawn::Pointer => return Came::Pointer,
                    Drawn::Frame(sequence) => {
                        self.frames += 1;
                        return Came::Frame(sequence);
                    }
                },
                Ok(other) => panic!("{other:?}"),
                Err((code, reason)) => return Came::Closed(code, reason),
            }
        }
    }

    /// The next that is told of this kind.
    pub async fn told(&mut self, kind: &str) -> Value {
        self.told_when(kind, |_| true).await
    }

    /// The next that is told of this kind and is as wanted.
    pub async fn told_when(&mut self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.next().await {
                Came::Told(told) if told["type"] == kind && wanted(&told) => return told,
                Came::Closed(code, reason) => panic!("closed with {code}: {reason}"),
                Came::Frame(sequence) => self.seen(sequence).await,
                Came::Told(_) | Came::Pointer => {}
            }
        }
    }

    /// The next frame; it is not acknowledged.
    pub async fn frame(&mut self) -> u32 {
        loop {
            match self.next().await {
                Came::Frame(sequence) => return sequence,
                Came::Closed(code, reason) => panic!("closed with {code}: {reason}"),
                Came::Told(_) | Came::Pointer => {}
            }
        }
    }

    /// Takes all frames until what it sees is as wanted.
    pub async fn watch_until(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let watching = async {
            while !wanted(self) {
                let sequence = self.frame().await;
                self.seen(sequence).await;
            }
        };
        in_time(what, watching).await;
    }

    pub fn at(&self, x: u32, y: u32) -> Option<u32> {
        let at = (y * self.width + x) as usize;
        self.pixels.get(at).copied().flatten()
    }

    /// Reads until the connection ends.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Came::Closed(code, reason) = self.next().await {
                return (code, reason);
            }
        }
    }

    fn draw(&mut self, picture: &[u8]) -> Drawn {
        self.bytes += picture.len();
        let (header, image) = picture.split_at(HEADER);
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

/// RGB.
fn decode(png: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(Cursor::new(png))
        .read_info()
        .expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("of a size")];
    let info = reader.next_frame(&mut pixels).expect("a picture");
    assert_eq!(info.color_type, png::ColorType::Rgb);
    pixels
}

/// A picture of what a page looks like, and its pixels. It is kept where somebody wants to see it.
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

    /// A PNG in base64; it is kept for whoever wants to look at it.
    pub fn of(picture: &Value, name: &str) -> Self {
        let png = STANDARD
            .decode(picture.as_str().expect("a picture"))
            .expect("base64");
        if let Some(folder) = std::env::var_os("BERTH_TEST_PICTURES") {
            let folder = Path::new(&folder);
            fs::create_dir_all(folder).expect("a folder");
            fs::write(folder.join(format!("{name}.png")), &png).expect("it can be written");
        }
        let mut reader = png::Decoder::new(Cursor::new(&png))
            .read_info()
            .expect("a PNG");
        let (width, size) = (
            reader.info().width as usize,
            reader.output_buffer_size().expect("of a size"),
        );
        let mut pixels = vec![0; size];
        let info = reader.next_frame(&mut pixels).expect("a picture");
        let samples = info.color_type.samples();
        let pixels = pixels
            .chunks_exact(samples)
            .flat_map(|pixel| pixel[..3].to_vec())
            .collect();
        Self { width, pixels }
    }

    /// How much of it is about this colour, as a part of 1.
    pub fn share_of(&self, color: [u8; 3]) -> f64 {
        let pixels = self.pixels.as_chunks::<3>().0;
        let is_alike = |pixel: &&[u8; 3]| {
            let mut pairs = pixel.iter().zip(color);
            pairs.all(|(seen, wanted)| seen.abs_diff(wanted) < 40)
        };
        pixels.iter().filter(is_alike).count() as f64 / pixels.len() as f64
    }

    /// Red, green, blue.
    pub fn at(&self, x: u32, y: u32) -> [u8; 3] {
        let at = (y as usize * self.width + x as usize) * 3;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

/// Opens an address in an agent's browser, whatever it showed before.
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

/// Notes in `said` what the page says on its connection, which is `connection`.
const NOTE: &str = "window.said = []; const send = WebSocket.prototype.send; \
    WebSocket.prototype.send = function (message) { window.connection = this; said.push(JSON.parse(message)); send.call(this, message) };";

/// As [`open`]; what the page says is noted in its `said`. The script runs before its own.
pub async fn open_noted(agent: &TestAgent, url: &str, script: &str) -> Page {
    let mut page = Page::of(agent).await;
    page.call("Page.enable", json!({})).await;
    let source = json!({"source": format!("{NOTE}{script}")});
    page.call("Page.addScriptToEvaluateOnNewDocument", source)
        .await;
    go(&mut page, url).await;
    page
}

/// Where the page of a live view says that it shows the browser.
pub async fn until_live(page: &mut Page) {
    page.until("document.body.dataset.state", |state| state == "live")
        .await;
}
