//! The keyboard's focus where there is no window manager: the newest window gets it, and when that goes, the one on top of the rest.

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

use super::screen::Atoms;
use crate::system::x11::server::{X11Error, XConnection};

pub struct Focus {
    /// Windows that take the focus.
    windows: Vec<Window>,
}

impl Focus {
    /// Looks at what is there already; where nothing of it has the focus, the one on top gets it.
    pub fn new(x: &XConnection, root: Window, atoms: &Atoms) -> Result<Self, X11Error> {
        let mut focus = Self {
            windows: Vec::new(),
        };
        for window in x.query_tree(root)?.reply()?.children {
            if takes_focus(x, window, atoms)? {
                focus.windows.push(window);
            }
        }
        focus.mend(x, root)?;
        Ok(focus)
    }

    /// Whether it is there and takes the focus.
    pub fn knows(&self, window: Window) -> bool {
        self.windows.contains(&window)
    }

    pub fn heed(
        &mut self,
        x: &XConnection,
        root: Window,
        atoms: &Atoms,
        event: &Event,
    ) -> Result<(), X11Error> {
        match event {
            Event::MapNotify(mapped)
                if mapped.event == root && takes_focus(x, mapped.window, atoms)? =>
            {
                self.windows.push(mapped.window);
                raise(x, mapped.window)?;
                give(x, mapped.window)?;
            }
            Event::UnmapNotify(gone) if gone.event == root => self.lost(x, root, gone.window)?,
            Event::DestroyNotify(gone) if gone.event == root => self.lost(x, root, gone.window)?,
            Event::ReparentNotify(gone) if gone.event == root && gone.parent != root => {
                self.lost(x, root, gone.window)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn lost(&mut self, x: &XConnection, root: Window, window: Window) -> Result<(), X11Error> {
        let before = self.windows.len();
        self.windows.retain(|known| *known != window);
        if self.windows.len() < before {
            self.mend(x, root)?;
        }
        Ok(())
    }

    /// Where none of the windows has the focus, the one on top gets it.
    fn mend(&self, x: &XConnection, root: Window) -> Result<(), X11Error> {
        let focused = x.get_input_focus()?.reply()?.focus;
        if self.windows.is_empty() || self.windows.contains(&focused) {
            return Ok(());
        }
        let stacked = x.query_tree(root)?.reply()?.children;
        let mut from_above = stacked.iter().rev();
        match from_above.find(|window| self.windows.contains(window)) {
            Some(top) => give(x, *top),
            None => Ok(()),
        }
    }

    /// The window that is about to be clicked at gets the focus, or the dialog that it waits for. Its dialogs stay above it.
    pub fn under_pointer(
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
        let awaited = dialogs.iter().rev().find(|dialog| dialog.is_modal);
        let wanted = awaited.map_or(under, |dialog| dialog.window);
        if wanted != focused {
            raise(x, under)?;
            for dialog in &dialogs {
                raise(x, dialog.window)?;
            }
            give(x, wanted)?;
        }
        Ok(())
    }

    /// And those of its dialogs, each after the one it belongs to.
    fn dialogs_of(
        &self,
        x: &XConnection,
        window: Window,
        atoms: &Atoms,
    ) -> Result<Vec<Dialog>, X11Error> {
        let mut others = Vec::new();
        for window in &self.windows {
            others.extend(dialog(x, *window, atoms)?);
        }
        let (mut found, mut owners) = (Vec::new(), vec![window]);
        while let Some(owner) = owners.pop() {
            let (its, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|other| other.owner == owner);
            owners.extend(its.iter().map(|dialog| dialog.window));
            found.extend(its);
            others = rest;
        }
        Ok(found)
    }
}

/// A window that belongs to another.
#[derive(Clone, Copy)]
struct Dialog {
    window: Window,
    owner: Window,
    /// Whether its owner takes nothing as long as it is there.
    is_modal: bool,
}

/// The window as one, if it is. It may go at any moment, which is no error.
fn dialog(x: &XConnection, window: Window, atoms: &Atoms) -> Result<Option<Dialog>, X11Error> {
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

/// It may go at any moment, which is no error.
fn takes_focus(x: &XConnection, window: Window, atoms: &Atoms) -> Result<bool, X11Error> {
    let attributes = x.get_window_attributes(window)?;
    let kind: Atom = AtomEnum::ATOM.into();
    let types = x.get_property(false, window, atoms._NET_WM_WINDOW_TYPE, kind, 0, 16)?;
    let (Ok(attributes), Ok(types)) = (attributes.reply(), types.reply()) else {
        return Ok(false);
    };
    let passing = [
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
        && !types.any(|kind| passing.contains(&kind)))
}

fn give(x: &XConnection, window: Window) -> Result<(), X11Error> {
    // A window that has just gone cannot have it; the next one is told of by an event.
    x.set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME)?
        .ignore_error();
    Ok(x.flush()?)
}

fn raise(x: &XConnection, window: Window) -> Result<(), X11Error> {
    let above = ConfigureWindowAux::new().stack_mode(StackMode::ABOVE);
    x.configure_window(window, &above)?.ignore_error();
    Ok(x.flush()?)
}
