mod clipboard;
mod headless;
mod screenshot;
