mod files;
mod watch;
