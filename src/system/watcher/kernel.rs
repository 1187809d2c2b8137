//! The inotify instance: which watches need which directory, and the events as they come.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    path::Path,
    sync::Mutex,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
    },
};

use super::{MAX_BELOW, WatchError, WatchNumber, lock};

/// Events that wait to be told. Those beyond wait with the kernel, which says when it drops some.
const MAX_WAITING: usize = 1 << 16;

#[derive(Debug)]
pub struct Kernel {
    inotify: Inotify,
    needs: Mutex<Needs>,
    /// Readable once there is nothing to wait for any more.
    stopped: EventFd,
}

#[derive(Debug, Default)]
struct Needs {
    /// Which watches need a directory, and whether as their root.
    by_directory: HashMap<WatchDescriptor, Vec<(WatchNumber, bool)>>,
    /// The needs that are not for a root.
    below: usize,
}

impl Kernel {
    pub fn new() -> Result<Self, WatchError> {
        Ok(Kernel {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            needs: Mutex::default(),
            stopped: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        })
    }

    /// Lets a watch have what happens in a directory, once however often it asks. No link is followed.
    pub fn need(
        &self,
        path: &Path,
        watch: WatchNumber,
        is_root: bool,
    ) -> Result<WatchDescriptor, WatchError> {
        // What is only read, opened or closed is of no interest, and would fill the kernel's queue.
        let events = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        let mut needs = lock(&self.needs);
        let directory = self.inotify.add_watch(path, events)?;
        let full = needs.below >= MAX_BELOW;
        let watches = needs.by_directory.entry(directory).or_default();
        if watches.iter().any(|(needing, _)| *needing == watch) {
            return Ok(directory);
        }
        if is_root || !full {
            watches.push((watch, is_root));
            needs.below += usize::from(!is_root);
            return Ok(directory);
        }
        if watches.is_empty() {
            needs.by_directory.remove(&directory);
            let _ = self.inotify.rm_watch(directory);
        }
        Err(WatchError::Full)
    }

    pub fn release(&self, directory: WatchDescriptor, watch: WatchNumber) {
        let mut needs = lock(&self.needs);
        let Some(watches) = needs.by_directory.get_mut(&directory) else {
            return;
        };
        let Some(at) = watches.iter().position(|(needing, _)| *needing == watch) else {
            return;
        };
        let (_, is_root) = watches.swap_remove(at);
        let unneeded = watches.is_empty();
        needs.below -= usize::from(!is_root);
        if unneeded {
            needs.by_directory.remove(&directory);
            // One that was deleted is not watched any more.
            let _ = self.inotify.rm_watch(directory);
        }
    }

    /// The kernel watches it no longer, and does not use the number again.
    pub fn ignored(&self, directory: WatchDescriptor) {
        let mut needs = lock(&self.needs);
        let watches = needs.by_directory.remove(&directory).unwrap_or_default();
        needs.below -= watches.iter().filter(|(_, is_root)| !is_root).count();
    }

    pub fn watches_of(&self, directory: WatchDescriptor) -> Vec<WatchNumber> {
        let needs = lock(&self.needs);
        let watches = needs.by_directory.get(&directory);
        watches.map_or_else(Vec::new, |watches| {
            watches.iter().map(|(watch, _)| *watch).collect()
        })
    }

    /// Waits for events; `false` after the stop.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)
        });
        let mut sources = [
            PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut sources, timeout) {
            Ok(_) | Err(Errno::EINTR) => !sources[1].any().unwrap_or_default(),
            Err(error) => {
                tracing::error!(%error, "inotify cannot be waited for");
                false
            }
        }
    }

    pub fn stop(&self) {
        // It can only be set already.
        let _ = self.stopped.write(1);
    }
}

/// The events that have been fetched and not been told.
pub struct Inbox<'a> {
    kernel: &'a Kernel,
    events: VecDeque<InotifyEvent>,
    /// The number of the event that was taken last.
    taken: u64,
    /// The kernel had nothing more when it was last asked.
    drained: bool,
    failed: bool,
}

impl<'a> Inbox<'a> {
    pub fn new(kernel: &'a Kernel) -> Self {
        Inbox {
            kernel,
            events: VecDeque::new(),
            taken: 0,
            drained: false,
            failed: false,
        }
    }

    pub fn kernel(&self) -> &'a Kernel {
        self.kernel
    }

    /// Fetches what the kernel has, so that its own queue does not overflow.
    pub fn fill(&mut self) {
        self.drained = false;
        while self.events.len() < MAX_WAITING {
            match self.kernel.inotify.read_events() {
                Ok(events) => self.events.extend(events),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.drained = true;
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "inotify cannot be read");
                    self.failed = true;
                    return;
                }
            }
        }
    }

    pub fn pop(&mut self) -> Option<InotifyEvent> {
        let event = self.events.pop_front()?;
        self.taken += 1;
        Some(event)
    }

    /// The number of the event that was taken last.
    pub fn now(&self) -> u64 {
        self.taken
    }

    /// The number of the last event that had happened when it was last filled.
    pub fn last(&self) -> u64 {
        if self.drained {
            self.taken + self.events.len() as u64
        } else {
            u64::MAX
        }
    }

    /// All that had happened when it was last filled has been taken.
    pub fn is_drained(&self) -> bool {
        self.drained && self.events.is_empty()
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }
}
