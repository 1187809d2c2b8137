mod connections;
mod flow_tokens;
