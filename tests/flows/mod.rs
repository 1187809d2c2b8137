
mod tunnel;
