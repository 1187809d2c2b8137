
mod proxy;
mod tunnel;
