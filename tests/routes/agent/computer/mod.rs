mod clipboard;
