//! A session with one tab: its size, screenshots, mouse and keyboard.

use std::collections::HashMap;

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
use parking_lot::Mutex;

use crate::{
    api::computer::MouseButton,
    system::cdp::connection::{Cdp, CdpError, PendingReply},
};

/// The isolated world in which expressions are evaluated: a page cannot change its globals.
const ISOLATED_WORLD: &str = "berth";

/// An open tab.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tab {
    pub id: String,
    pub url: String,
}

/// A session with a tab, over a shared connection.
pub struct TabSession {
    pub(super) cdp: Cdp,
    pub(super) id: SessionId,
    /// The sessions with frames that have a process of their own, by the ids of their targets.
    pub(super) frame_sessions: Mutex<HashMap<String, SessionId>>,
    tab: Tab,
}

/// The modifier keys held during an event.
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

    /// Whether a key pressed with these modifiers writes no text.
    #[must_use]
    pub fn is_command(self) -> bool {
        self.alt || self.ctrl || self.meta
    }
}

/// An event of the mouse.
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
    /// Scrolls by this number of pixels to the right and down.
    Wheel {
        across: f64,
        down: f64,
    },
}

/// An event of a key. It implements no `Debug`, because it may be part of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyEvent {
    pub down: bool,
    /// The `key` of the page's `KeyboardEvent`. `code`, `key_code` and `location` correspond too.
    pub key: String,
    pub code: &'static str,
    pub key_code: u16,
    pub location: u8,
    /// The text that the key writes.
    pub text: Option<String>,
}

impl Cdp {
    /// Attaches to a tab.
    pub async fn attach(&self, tab: Tab) -> Result<TabSession, CdpError> {
        let id = self.attach_session(&tab).await?;
        let cdp = self.clone();
        Ok(TabSession {
            cdp,
            id,
            frame_sessions: Mutex::default(),
            tab,
        })
    }
}

impl TabSession {
    pub fn tab(&self) -> &Tab {
        &self.tab
    }

    /// Emulates the keyboard focus while the session is attached, as the page in front of a screen
    /// has it.
    pub async fn emulate_focus(&self) -> Result<(), CdpError> {
        let focus = SetFocusEmulationEnabledParams::new(true);
        self.call(focus).await.map(drop)
    }

    /// Returns the width and height of the page's viewport, including scroll bars.
    pub async fn size(&self) -> Result<(u32, u32), CdpError> {
        const EXPRESSION: &str = "[innerWidth, innerHeight]";
        let tree = self.call(GetFrameTreeParams::default()).await?;
        let mut world = CreateIsolatedWorldParams::new(tree.frame_tree.frame.id);
        world.world_name = Some(ISOLATED_WORLD.to_owned());
        let world = self.call(world).await?.execution_context_id;
        let mut evaluate = EvaluateParams::new(EXPRESSION);
        evaluate.context_id = Some(world);
        evaluate.return_by_value = Some(true);
        let value = self.call(evaluate).await?.result.value;
        let sizes = value.and_then(|value| serde_json::from_value(value).ok());
        sizes.ok_or_else(|| CdpError::InvalidReply {
            method: EXPRESSION.to_owned(),
            message: "no size".to_owned(),
        })
    }

    /// Sends a mouse event at a position. `held` are the buttons held afterwards. The reply arrives
    /// when the page has handled the event.
    pub async fn mouse(
        &self,
        event: MouseEvent,
        (x, y): (i32, i32),
        held: &[MouseButton],
        modifiers: Modifiers,
    ) -> Result<PendingReply, CdpError> {
        let kind = match event {
            MouseEvent::Moved => DispatchMouseEventType::MouseMoved,
            MouseEvent::Pressed { .. } => DispatchMouseEventType::MousePressed,
            MouseEvent::Released { .. } => DispatchMouseEventType::MouseReleased,
            MouseEvent::Wheel { .. } => DispatchMouseEventType::MouseWheel,
        };
        let mut params = DispatchMouseEventParams::new(kind, f64::from(x), f64::from(y));
        params.modifiers = Some(modifiers.bits());
        params.buttons = Some(held.iter().map(|button| button_bit(*button)).sum());
        params.button = Some(
            held.first()
                .map_or(CdpButton::None, |button| cdp_button(*button)),
        );
        match event {
            MouseEvent::Moved => {}
            MouseEvent::Pressed { button, clicks } | MouseEvent::Released { button, clicks } => {
                params.button = Some(cdp_button(button));
                params.click_count = Some(clicks.into());
            }
            MouseEvent::Wheel { across, down } => {
                (params.delta_x, params.delta_y) = (Some(across), Some(down));
            }
        }
        self.cdp.send(params, Some(self.id.clone())).await
    }

    /// Sends a key event. The reply arrives when the page has handled the event.
    pub async fn key(
        &self,
        event: KeyEvent,
        modifiers: Modifiers,
    ) -> Result<PendingReply, CdpError> {
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

    /// Returns a PNG of the page's viewport.
    pub async fn screenshot(&self) -> Result<Vec<u8>, CdpError> {
        let params = CaptureScreenshotParams {
            format: Some(CaptureScreenshotFormat::Png),
            optimize_for_speed: Some(true),
            ..CaptureScreenshotParams::default()
        };
        let data = self.call(params).await?.data;
        STANDARD
            .decode(&data)
            .map_err(|error| CdpError::InvalidReply {
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

fn cdp_button(button: MouseButton) -> CdpButton {
    match button {
        MouseButton::Left => CdpButton::Left,
        MouseButton::Right => CdpButton::Right,
        MouseButton::Middle => CdpButton::Middle,
        MouseButton::Back => CdpButton::Back,
        MouseButton::Forward => CdpButton::Forward,
    }
}

fn button_bit(button: MouseButton) -> i64 {
    match button {
        MouseButton::Left => 1,
        MouseButton::Right => 2,
        MouseButton::Middle => 4,
        MouseButton::Back => 8,
        MouseButton::Forward => 16,
    }
}
