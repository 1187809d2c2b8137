mod dev;

mod proxy;
mod tunnel;
