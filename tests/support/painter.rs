//! Draws on an agent's screen and reads screenshots.

use std::io::Cursor;

use reqwest::StatusCode;
use serde_json::{Value, json};
use x11rb::{
    connection::Connection,
    protocol::xproto::{
        ChangeGCAux, ConnectionExt as _, CreateGCAux, Gcontext, ImageFormat, Rectangle, Window,
    },
    rust_connection::RustConnection,
};

use super::{
    agent::TestAgent,
    files::noise,
    screen,
    wait::{in_time, until},
};

pub const RED: u32 = 0x00ff_0000;
pub const GREEN: u32 = 0x0000_ff00;
pub const BLUE: u32 = 0x0000_00ff;

/// Draws on the root window, for agents without a browser: its windows would cover the root.
pub struct Painter {
    x: RustConnection,
    root: Window,
    gc: Gcontext,
}

impl Painter {
    /// Waits for the screen and connects to it.
    pub async fn on(agent: &TestAgent) -> Self {
        until("the screen", async || {
            let health = agent.ok(agent.get("/health")).await;
            health["display"]["name"].as_str()?;
            let width = health["display"]["viewport"]["width"].as_u64()?;
            let x = screen::connect(agent).await;
            assert_eq!(u64::from(x.setup().roots[0].width_in_pixels), width);
            Some(Self::with(x))
        })
        .await
    }

    fn with(x: RustConnection) -> Self {
        let root = x.setup().roots[0].root;
        let gc = x.generate_id().unwrap();
        x.create_gc(gc, root, &CreateGCAux::new()).unwrap();
        let painter = Self { x, root, gc };
        // The corner where the pointer covers the least.
        painter.point_at(0, 0);
        painter
    }

    pub fn fill(&self, x: i16, y: i16, width: u16, height: u16, color: u32) {
        let color = ChangeGCAux::new().foreground(color);
        self.x.change_gc(self.gc, &color).unwrap();
        let rectangle = Rectangle {
            x,
            y,
            width,
            height,
        };
        let filled = self.x.poly_fill_rectangle(self.root, self.gc, &[rectangle]);
        filled.unwrap().check().unwrap();
    }

    pub fn fill_all(&self, color: u32) {
        // A larger rectangle overflows in the server: it is drawn without a damage event.
        const SIDE: u16 = 4000;
        self.fill(0, 0, SIDE, SIDE, color);
    }

    /// Fills a corner with incompressible pixels, which depend on the seed.
    pub fn noise(&self, seed: u8) {
        const SIDE: u16 = 200;
        let pixels = usize::from(SIDE) * usize::from(SIDE);
        let mut bytes = noise(pixels * 4 + 256);
        let image = bytes.split_off(usize::from(seed));
        let put = self.x.put_image(
            ImageFormat::Z_PIXMAP,
            self.root,
            self.gc,
            SIDE,
            SIDE,
            0,
            0,
            0,
            24,
            &image[..pixels * 4],
        );
        put.unwrap().check().unwrap();
    }

    pub fn point_at(&self, x: i16, y: i16) {
        let moved = self
            .x
            .warp_pointer(x11rb::NONE, self.root, 0, 0, 0, 0, x, y);
        moved.unwrap().check().unwrap();
    }
}

/// An image in RGB.
pub struct Image {
    pub width: u32,
    pub height: u32,
    pixels: Vec<u8>,
}

impl Image {
    pub fn of_png(bytes: &[u8]) -> Self {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        Self {
            width: info.width,
            height: info.height,
            pixels,
        }
    }

    /// Returns red, green and blue of each pixel.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Returns a pixel as `0xRRGGBB`.
    pub fn at(&self, x: u32, y: u32) -> u32 {
        let at = (y * self.width + x) as usize * 3;
        let [red, green, blue] = self.pixels[at..at + 3] else {
            unreachable!()
        };
        u32::from_be_bytes([0, red, green, blue])
    }
}

/// Takes a screenshot and asserts success. `{}` means the whole screen.
pub async fn screenshot(agent: &TestAgent, body: &Value) -> Image {
    let request = agent.post("/computer/screenshot").json(body);
    let response = in_time("a screenshot", request.send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{}", agent.log());
    assert_eq!(response.headers()["content-type"], "image/png");
    let bytes = in_time("an image", response.bytes()).await.unwrap();
    Image::of_png(&bytes)
}

pub fn region(x: u32, y: u32, width: u32, height: u32) -> Value {
    json!({"region": {"x": x, "y": y, "width": width, "height": height}})
}
