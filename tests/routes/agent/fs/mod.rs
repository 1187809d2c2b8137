mod watch;
