mod download;
mod files;
mod upload;
mod upload_zip;
mod watch;
