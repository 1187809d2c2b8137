//! Chromium's DevTools protocol (CDP), and Chromium's command-line flags.
//!
//! ```text
//! Chromium <-- pipe --> multiplexer <-- CdpSender, CdpReceiver --> clients of a WebSocket
//!                                                              --> script workers
//!                                                              --> connection --> tab
//! ```
//!
//! | file | job |
//! |---|---|
//! | `pipe` | the descriptors, and messages in their byte streams |
//! | `cbor` | JSON text to and from the binary form of messages on the pipe |
//! | `message` | the head of a message |
//! | `multiplexer` | a connection for each client over the one pipe |
//! | `connection` | the agent's own commands, typed, over one such connection |
//! | `tab` | a session with one tab, over a `connection` |
//! | `frame_documents` | the documents in a tab's frames |
//! | `frame_scripts` | scripts in isolated worlds of a tab's frames |
//! | `main_document` | the document that a tab shows, and the machines that it is from |
//! | `policy` | the methods that clients, scripts and viewers may call |
//! | `chromium_flags` | the option `--chromium-flag` |

mod cbor;
pub mod chromium_flags;
pub mod connection;
mod frame_documents;
pub mod frame_scripts;
pub mod main_document;
pub mod message;
pub mod multiplexer;
pub mod pipe;
pub mod policy;
pub mod tab;
