mod hosts;
mod join_tokens;
