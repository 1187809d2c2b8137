//! Manages the keyboard focus in place of a window manager: the newest window gets it, and when
//! that closes, the topmost of the others.

use x11rb::{
    connection::Connection,
    protocol::{
        Event,
        xproto::{
            Atom, AtomEnum, ConfigureWindowAux, ConnectionExt as _, InputFocus, MapState,
            StackMode, Window, WindowClass,
        },
    },
};

use super::x_input::Atoms;
use crate::system::x11::server::{X11Error, XConnection};

/// Tracks the windows that accept the focus.
pub(super) struct FocusManager {
    windows: Vec<Window>,
}

impl FocusManager {
    /// Collects the existing windows and focuses the topmost one if none has the focus.
    pub(super) fn new(x: &XConnection, root: Window, atoms: &Atoms) -> Result<Self, X11Error> {
        let mut focus = Self {
            windows: Vec::new(),
        };
        for window in x.query_tree(root)?.reply()?.children {
            if accepts_focus(x, window, atoms)? {
                focus.windows.push(window);
            }
        }
        focus.repair(x, root)?;
        Ok(focus)
    }

    /// Returns whether the window exists and accepts the focus.
    pub(super) fn contains(&self, window: Window) -> bool {
        self.windows.contains(&window)
    }

    pub(super) fn handle_event(
        &mut self,
        x: &XConnection,
        root: Window,
        atoms: &Atoms,
        event: &Event,
    ) -> Result<(), X11Error> {
        match event {
            Event::MapNotify(mapped)
                if mapped.event == root && accepts_focus(x, mapped.window, atoms)? =>
            {
                self.windows.push(mapped.window);
                raise(x, mapped.window)?;
                focus(x, mapped.window)?;
            }
            Event::UnmapNotify(event) if event.event == root => {
                self.remove(x, root, event.window)?
            }
            Event::DestroyNotify(event) if event.event == root => {
                self.remove(x, root, event.window)?;
            }
            Event::ReparentNotify(event) if event.event == root && event.parent != root => {
                self.remove(x, root, event.window)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, x: &XConnection, root: Window, window: Window) -> Result<(), X11Error> {
        let before = self.windows.len();
        self.windows.retain(|known| *known != window);
        if self.windows.len() < before {
            self.repair(x, root)?;
        }
        Ok(())
    }

    /// Focuses the topmost window if none has the focus.
    fn repair(&self, x: &XConnection, root: Window) -> Result<(), X11Error> {
        let focused = x.get_input_focus()?.reply()?.focus;
        if self.windows.is_empty() || self.windows.contains(&focused) {
            return Ok(());
        }
        let stacked = x.query_tree(root)?.reply()?.children;
        let mut from_top = stacked.iter().rev();
        match from_top.find(|window| self.windows.contains(window)) {
            Some(top) => focus(x, *top),
            None => Ok(()),
        }
    }

    /// Focuses the window under the pointer, which is about to be clicked, or its modal dialog. Its
    /// dialogs stay above it.
    pub(super) fn focus_under_pointer(
        &self,
        x: &XConnection,
        root: Window,
        atoms: &Atoms,
    ) -> Result<(), X11Error> {
        if self.windows.len() < 2 {
            return Ok(());
        }
        let under = x.query_pointer(root)?.reply()?.child;
        let focused = x.get_input_focus()?.reply()?.focus;
        if under == focused || !self.windows.contains(&under) {
            return Ok(());
        }
        let dialogs = self.dialogs_of(x, under, atoms)?;
        let modal = dialogs.iter().rev().find(|dialog| dialog.is_modal);
        let target = modal.map_or(under, |dialog| dialog.window);
        if target != focused {
            raise(x, under)?;
            for dialog in &dialogs {
                raise(x, dialog.window)?;
            }
            focus(x, target)?;
        }
        Ok(())
    }

    /// Returns the dialogs of a window and of these dialogs, each after its owner.
    fn dialogs_of(
        &self,
        x: &XConnection,
        window: Window,
        atoms: &Atoms,
    ) -> Result<Vec<Dialog>, X11Error> {
        let mut others = Vec::new();
        for window in &self.windows {
            others.extend(as_dialog(x, *window, atoms)?);
        }
        let (mut found, mut owners) = (Vec::new(), vec![window]);
        while let Some(owner) = owners.pop() {
            let (owned, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|other| other.owner == owner);
            owners.extend(owned.iter().map(|dialog| dialog.window));
            found.extend(owned);
            others = rest;
        }
        Ok(found)
    }
}

/// A window that belongs to another one.
#[derive(Clone, Copy)]
struct Dialog {
    window: Window,
    owner: Window,
    /// Whether it blocks its owner.
    is_modal: bool,
}

/// Returns the window as a dialog if it is one. A window that is gone by now is none.
fn as_dialog(x: &XConnection, window: Window, atoms: &Atoms) -> Result<Option<Dialog>, X11Error> {
    let (transient, is_window) = (AtomEnum::WM_TRANSIENT_FOR, AtomEnum::WINDOW);
    let owner = x.get_property(false, window, transient, is_window, 0, 1)?;
    let kind: Atom = AtomEnum::ATOM.into();
    let states = x.get_property(false, window, atoms._NET_WM_STATE, kind, 0, 64)?;
    let (Ok(owner), Ok(states)) = (owner.reply(), states.reply()) else {
        return Ok(None);
    };
    let mut states = states.value32().into_iter().flatten();
    let is_modal = states.any(|state| state == atoms._NET_WM_STATE_MODAL);
    let owner = owner.value32().and_then(|mut owners| owners.next());
    Ok(owner.map(|owner| Dialog {
        window,
        owner,
        is_modal,
    }))
}

/// Returns whether the window accepts the focus. A window that is gone by now does not.
fn accepts_focus(x: &XConnection, window: Window, atoms: &Atoms) -> Result<bool, X11Error> {
    let attributes = x.get_window_attributes(window)?;
    let kind: Atom = AtomEnum::ATOM.into();
    let types = x.get_property(false, window, atoms._NET_WM_WINDOW_TYPE, kind, 0, 16)?;
    let (Ok(attributes), Ok(types)) = (attributes.reply(), types.reply()) else {
        return Ok(false);
    };
    let transient = [
        atoms._NET_WM_WINDOW_TYPE_TOOLTIP,
        atoms._NET_WM_WINDOW_TYPE_NOTIFICATION,
        atoms._NET_WM_WINDOW_TYPE_DND,
        atoms._NET_WM_WINDOW_TYPE_POPUP_MENU,
        atoms._NET_WM_WINDOW_TYPE_DROPDOWN_MENU,
        atoms._NET_WM_WINDOW_TYPE_COMBO,
    ];
    let mut types = types.value32().into_iter().flatten();
    Ok(attributes.map_state == MapState::VIEWABLE
        && attributes.class == WindowClass::INPUT_OUTPUT
        && !attributes.override_redirect
        && !types.any(|kind| transient.contains(&kind)))
}

fn focus(x: &XConnection, window: Window) -> Result<(), X11Error> {
    // Fails if the window is gone by now; its event then moves the focus on.
    x.set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME)?
        .ignore_error();
    Ok(x.flush()?)
}

fn raise(x: &XConnection, window: Window) -> Result<(), X11Error> {
    let above = ConfigureWindowAux::new().stack_mode(StackMode::ABOVE);
    x.configure_window(window, &above)?.ignore_error();
    Ok(x.flush()?)
}
