//! HTTP plumbing both servers share.
