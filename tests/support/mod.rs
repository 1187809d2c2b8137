//! Starts the real agents, servers, browsers and clients of the tests, and reads their results.

pub mod agent;
pub mod canary_site;
pub mod cgroups;
pub mod dev;
pub mod events;
pub mod files;
pub mod live;
pub mod page;
pub mod painter;
pub mod postgres;
pub mod processes;
pub mod python;
pub mod recorder;
pub mod replays;
pub mod requests;
pub mod screen;
pub mod script_worker;
pub mod scripts;
pub mod site;
pub mod sockets;
pub mod sound;
pub mod spawned;
pub mod video;
pub mod wait;
pub mod websocket;
pub mod xrecord;
