//! Adapters to everything outside this process, one directory per external system.
//!
//! ```text
//! process/  child processes, sessions, pseudo-terminals, the process tree in /proc
//! x11/      the X server: its screen, input and clipboard
//! cdp/      Chromium's DevTools endpoint
//! machine/  the clock, random numbers, id and network of the machine
//! media/    the encoder of recordings, JPEG images, the sound server
//! files/    archives, directory watches, removal of directory trees
//! profile/  Chromium's files in a user-data directory
//! labelled_disk a disk with the settings of a machine
//! locked_memory memory for keys
//! identity/ keys, certificates and tokens of the hosts of a fleet
//! script/   script worker processes and their protocol
//! service_manager systemd: notifications, watchdog and passed sockets
//! outbound/ HTTP requests to addresses that users configure
//! sync/     threads that block on descriptors, and work that must not stop in the middle
//! ```
//!
//! Each external crate that talks to one of these systems has a single importer here.

pub mod cdp;
pub mod files;
pub mod identity;
pub mod labelled_disk;
pub mod locked_memory;
pub mod machine;
pub mod media;
pub mod outbound;
pub mod process;
pub mod profile;
pub mod script;
pub mod service_manager;
pub mod sync;
pub mod x11;
