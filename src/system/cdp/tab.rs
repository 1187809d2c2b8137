//! A tab as its user has it: what it shows, its mouse and its keyboard.

use base64::{Engine, engine::general_purpose::STANDARD};
use chromiumoxide::cdp::{
    browser_protocol::{
        emulation::SetFocusEmulationEnabledParams,
        input::{
            DispatchKeyEventParams, DispatchKeyEventType, DispatchMouseEventParams,
            DispatchMouseEventType, MouseButton as CdpButton,
        },
        page::{
            CaptureScreenshotFormat, CaptureScreenshotParams, CreateIsolatedWorldParams,
            GetFrameTreeParams,
        },
        target::SessionId,
    },
    js_protocol::runtime::EvaluateParams,
};

use crate::api::computer::MouseButton;
use crate::system::{
    cdp::connection::{Cdp, CdpError, Sent},
    cdp::devtools::Tab,
};

/// Where what the page itself has made of its globals does not count.
const WORLD: &str = "berth";

/// A tab this connection is attached to.
pub struct TabSession {
    cdp: Cdp,
    id: SessionId,
    tab: Tab,
}

/// What is held while something happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modifiers {
    pub alt: bool,
    pub ctrl: bool,
    pub meta: bool,
    pub shift: bool,
}

impl Modifiers {
    fn bits(self) -> i64 {
        let bit = |held: bool, bit: i64| if held { bit } else { 0 };
        bit(self.alt, 1) | bit(self.ctrl, 2) | bit(self.meta, 4) | bit(self.shift, 8)
    }

    /// Whether a key that is pressed now writes nothing.
    #[must_use]
    pub fn command(self) -> bool {
        self.alt || self.ctrl || self.meta
    }
}

/// What the mouse does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MouseEvent {
    Moved,
    Pressed {
        button: MouseButton,
        clicks: u32,
    },
    Released {
        button: MouseButton,
        clicks: u32,
    },
    /// By so many pixels to the right and down.
    Wheel {
        across: f64,
        down: f64,
    },
}

/// What a key does. It may be part of a secret: it does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyEvent {
    pub down: bool,
    /// As in `KeyboardEvent`.
    pub key: String,
    pub code: &'static str,
    pub key_code: u16,
    pub location: u8,
    /// What it writes.
    pub text: Option<String>,
}

impl Cdp {
    pub async fn attach(&self, tab: Tab) -> Result<TabSession, CdpError> {
        let id = self.session_of(&tab).await?;
        let cdp = self.clone();
        Ok(TabSession { cdp, id, tab })
    }
}

impl TabSession {
    pub fn tab(&self) -> &Tab {
        &self.tab
    }

    /// Lets the page believe, for as long as this is attached, that it has the keyboard's focus, as the page in front of a screen has.
    pub async fn focus(&self) -> Result<(), CdpError> {
        let focus = SetFocusEmulationEnabledParams::new(true);
        self.call(focus).await.map(drop)
    }

    /// Width and height of what it shows, scroll bars included.
    pub async fn size(&self) -> Result<(u32, u32), CdpError> {
        const EXPRESSION: &str = "[innerWidth, innerHeight]";
        let tree = self.call(GetFrameTreeParams::default()).await?;
        let mut world = CreateIsolatedWorldParams::new(tree.frame_tree.frame.id);
        world.world_name = Some(WORLD.to_owned());
        let world = self.call(world).await?.execution_context_id;
        let mut evaluate = EvaluateParams::new(EXPRESSION);
        evaluate.context_id = Some(world);
        evaluate.return_by_value = Some(true);
        let value = self.call(evaluate).await?.result.value;
        let sizes = value.and_then(|value| serde_json::from_value(value).ok());
        sizes.ok_or_else(|| CdpError::Answer {
            method: EXPRESSION.to_owned(),
            message: "no size".to_owned(),
        })
    }

    /// What happens to the mouse at a place, with these buttons held afterwards. It is answered once the page has taken it.
    pub async fn mouse(
        &self,
        event: MouseEvent,
        (x, y): (i32, i32),
        held: &[MouseButton],
        modifiers: Modifiers,
    ) -> Result<Sent, CdpError> {
        let kind = match event {
            MouseEvent::Moved => DispatchMouseEventType::MouseMoved,
            MouseEvent::Pressed { .. } => DispatchMouseEventType::MousePressed,
            MouseEvent::Released { .. } => DispatchMouseEventType::MouseReleased,
            MouseEvent::Wheel { .. } => DispatchMouseEventType::MouseWheel,
        };
        let mut params = DispatchMouseEventParams::new(kind, f64::from(x), f64::from(y));
        params.modifiers = Some(modifiers.bits());
        params.buttons = Some(held.iter().map(|button| bit_of(*button)).sum());
        params.button = Some(
            held.first()
                .map_or(CdpButton::None, |button| named(*button)),
        );
        match event {
            MouseEvent::Moved => {}
            MouseEvent::Pressed { button, clicks } | MouseEvent::Released { button, clicks } => {
                params.button = Some(named(button));
                params.click_count = Some(clicks.into());
            }
            MouseEvent::Wheel { across, down } => {
                (params.delta_x, params.delta_y) = (Some(across), Some(down));
            }
        }
        self.cdp.send(params, Some(self.id.clone())).await
    }

    /// What happens to a key. It is answered once the page has taken it.
    pub async fn key(&self, event: KeyEvent, modifiers: Modifiers) -> Result<Sent, CdpError> {
        const NUMPAD: u8 = 3;
        let kind = match (event.down, &event.text) {
            (false, _) => DispatchKeyEventType::KeyUp,
            (true, Some(_)) => DispatchKeyEventType::KeyDown,
            (true, None) => DispatchKeyEventType::RawKeyDown,
        };
        let mut params = DispatchKeyEventParams::new(kind);
        params.modifiers = Some(modifiers.bits());
        params.key = Some(event.key);
        params.code = Some(event.code.to_owned());
        params.windows_virtual_key_code = Some(event.key_code.into());
        params.location = Some(event.location.into());
        params.is_keypad = Some(event.location == NUMPAD);
        params.unmodified_text = event.text.clone();
        params.text = event.text;
        self.cdp.send(params, Some(self.id.clone())).await
    }

    /// All that it shows, as a PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>, CdpError> {
        let params = CaptureScreenshotParams {
            format: Some(CaptureScreenshotFormat::Png),
            optimize_for_speed: Some(true),
            ..CaptureScreenshotParams::default()
        };
        let data = self.call(params).await?.data;
        STANDARD.decode(&data).map_err(|error| CdpError::Answer {
            method: CaptureScreenshotParams::IDENTIFIER.into(),
            message: error.to_string(),
        })
    }

    async fn call<C: chromiumoxide::types::Command>(
        &self,
        command: C,
    ) -> Result<C::Response, CdpError> {
        self.cdp.call(command, Some(self.id.clone())).await
    }
}

fn named(button: MouseButton) -> CdpButton {
    match button {
        MouseButton::Left => CdpButton::Left,
        MouseButton::Right => CdpButton::Right,
        MouseButton::Middle => CdpButton::Middle,
        MouseButton::Back => CdpButton::Back,
        MouseButton::Forward => CdpButton::Forward,
    }
}

fn bit_of(button: MouseButton) -> i64 {
    match button {
        MouseButton::Left => 1,
        MouseButton::Right => 2,
        MouseButton::Middle => 4,
        MouseButton::Back => 8,
        MouseButton::Forward => 16,
    }
}
