mod api_keys;
