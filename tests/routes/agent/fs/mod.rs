mod download;
mod files;
mod protected;
mod upload;
mod upload_zip;
mod watch;
