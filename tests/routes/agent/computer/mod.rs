mod clipboard;
mod screenshot;
