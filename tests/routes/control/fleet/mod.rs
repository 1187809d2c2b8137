mod join_tokens;
