//! The map in ARCHITECTURE.md: which module may import which, and which crate has a single
//! importer.

use std::collections::BTreeSet;

use super::source::{assert_none, sources};

#[test]
fn packages_of_the_services_depend_on_their_own_version() {
    let manifest = std::fs::read_to_string("Cargo.toml").unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let package = &manifest["package"];
    let version = package["version"].as_str().unwrap();
    let own = ["berth", "berth-control"].map(|name| format!("{name} (= {version}-1)"));
    let variants = package["metadata"]["deb"]["variants"].as_table().unwrap();
    assert_eq!(variants.len(), 3);
    for (name, variant) in variants {
        let depends = variant["depends"].as_str().unwrap();
        let is_own = own.iter().any(|own| depends.starts_with(own));
        assert!(is_own, "{name}: {depends}");
    }
}

#[test]
fn layers_import_only_lower_layers() {
    // The files below the directory may name only these top-level modules.
    let rules: [(&str, &[&str]); 3] = [
        ("src/api/", &["api"]),
        (
            "src/http/",
            &[
                "api",
                "backoff",
                "http",
                "rate_limit",
                "request_scope",
                "shutdown",
                "streams",
            ],
        ),
        (
            "src/system/",
            &["api", "backoff", "lines", "shutdown", "system"],
        ),
    ];
    let mut offences = Vec::new();
    for source in sources("src") {
        for (directory, allowed) in rules {
            if source.is_in(&[directory]) {
                for name in source.own_modules() {
                    if !allowed.contains(&name.as_str()) {
                        offences.push(format!("{} names crate::{name}", source.path));
                    }
                }
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn system_groups_import_only_lower_groups() {
    // Each group, and the groups it may import besides itself.
    let rules: [(&str, &[&str]); 14] = [
        ("labelled_disk", &[]),
        ("locked_memory", &[]),
        ("machine", &[]),
        ("service_manager", &[]),
        ("sync", &[]),
        ("profile", &[]),
        ("identity", &[]),
        ("process", &["sync"]),
        ("files", &["sync"]),
        ("cdp", &["process", "profile", "sync"]),
        ("script", &["process", "sync"]),
        ("x11", &["process", "sync"]),
        ("media", &["process", "sync", "x11"]),
        ("outbound", &[]),
    ];
    let mut offences = Vec::new();
    for source in sources("src/system") {
        let Some(group) = source.module().get(1).cloned() else {
            continue;
        };
        let Some((_, allowed)) = rules.iter().find(|(name, _)| *name == group) else {
            offences.push(format!("src/system/{group} has no rule"));
            continue;
        };
        let imported: BTreeSet<String> = source
            .own_paths()
            .into_iter()
            .filter(|path| path[0] == "system")
            .filter_map(|path| path.into_iter().nth(1))
            .collect();
        for name in imported {
            if name != group && !allowed.contains(&name.as_str()) {
                offences.push(format!("{} names crate::system::{name}", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn servers_do_not_import_each_other() {
    let mut offences = Vec::new();
    for source in sources("src") {
        for (directory, other) in [("src/agent/", "control"), ("src/control/", "agent")] {
            if source.is_in(&[directory]) && source.own_modules().contains(other) {
                offences.push(format!("{} names crate::{other}", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn domain_names_no_http_and_no_routes() {
    // The first five assemble the servers, and take one apart for the next program. The proxy's job
    // is to forward HTTP and WebSockets.
    const EXEMPT: [&str; 6] = [
        "src/agent/handover.rs",
        "src/agent/mod.rs",
        "src/agent/services.rs",
        "src/control/mod.rs",
        "src/control/connections.rs",
        "src/control/proxy",
    ];
    let mut offences = Vec::new();
    for source in sources("src") {
        let domain =
            source.is_in(&["src/agent/", "src/control/"]) && !source.path.contains("/routes/");
        if !domain || source.is_in(&EXEMPT) {
            continue;
        }
        if source.own_modules().contains("http") || source.shipped().contains("axum::") {
            offences.push(format!("{} uses HTTP", source.path));
        }
        if source.shipped().contains("routes::") {
            offences.push(format!("{} names routes", source.path));
        }
    }
    assert_none(&offences);
}

#[test]
fn crates_with_a_single_importer_have_no_other() {
    let rules: [(&str, &[&str]); 30] = [
        ("sea_orm", &["src/control/store"]),
        ("sea_orm_migration", &["src/control/store"]),
        ("sqlx", &["src/control/store", "src/system/profile"]),
        ("lockable", &["src/control/keyed_mutex.rs"]),
        ("arboard", &["src/system/x11/clipboard"]),
        ("chromiumoxide", &["src/system/cdp"]),
        ("x11rb", &["src/system/x11", "src/system/media"]),
        ("tar", &["src/system/files/archive"]),
        ("zip", &["src/system/files/archive"]),
        ("zstd", &["src/system/files/archive"]),
        ("flate2", &["src/control/audit", "runtime/exchanges.rs"]),
        (
            "ipnet",
            &[
                "src/control/trusted_proxies.rs",
                "src/system/outbound/address_policy.rs",
            ],
        ),
        ("matchit", &["src/control/routes/auditing"]),
        (
            "jsonwebtoken",
            &[
                "src/control/auth_connections/flow_tokens",
                "src/control/session_token",
                "src/system/identity",
            ],
        ),
        (
            "rcgen",
            &["src/system/identity", "src/system/outbound/tests/"],
        ),
        ("rustls_native_certs", &["src/system/outbound/tls.rs"]),
        (
            "hyper_rustls",
            &[
                "src/agent/registration/control_client.rs",
                "src/control/blobs/s3/http_client.rs",
                "src/control/fleet/host_connector.rs",
                "src/profile_import/upload.rs",
                "src/system/outbound/client.rs",
            ],
        ),
        (
            "tokio_rustls",
            &[
                "src/http/tls.rs",
                "src/http/tunnel/upstream.rs",
                "src/system/outbound/tests/",
            ],
        ),
        ("object_store", &["src/control/blobs/"]),
        ("metrics_exporter_prometheus", &["src/http/metrics.rs"]),
        ("tracing_subscriber", &["src/cli/logs.rs"]),
        ("tracing_appender", &["src/cli/logs.rs"]),
        ("psl", &["src/api/public_suffix.rs"]),
        ("portable_pty", &["src/system/process/pty.rs"]),
        ("enigo", &["src/system/x11/input"]),
        ("jpeg_encoder", &["src/system/media/jpeg.rs"]),
        ("xkeysym", &["src/api/keys.rs"]),
        ("deno_core", &["runtime/"]),
        ("oxc", &["runtime/"]),
        // For tests only: see Cargo.toml.
        ("reqwest", &[]),
    ];
    let mut offences = Vec::new();
    for source in sources("src").into_iter().chain(sources("runtime")) {
        for (name, places) in rules {
            if source.names_crate(name) && !source.is_in(places) {
                offences.push(format!("{} uses {name}", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn only_cli_and_settings_read_the_environment() {
    let offences: Vec<String> = sources("src")
        .into_iter()
        .filter(|source| !source.is_in(&["src/cli/", "src/agent/settings/"]))
        .filter(|source| source.path != "src/control/settings.rs")
        .filter(|source| source.path != "src/control/blobs/settings.rs")
        .filter(|source| source.path != "src/control/secrets/settings.rs")
        .filter(|source| source.path != "src/profile_import/options.rs")
        // Passes parts of the environment on to children; reads no setting.
        .filter(|source| source.path != "src/system/process/environment.rs")
        // Set by systemd for its services.
        .filter(|source| source.path != "src/system/service_manager.rs")
        .filter(|source| source.shipped().contains("env::var"))
        .map(|source| format!("{} reads the environment", source.path))
        .collect();
    assert_none(&offences);
}

#[test]
fn tests_do_not_sleep() {
    let offences: Vec<String> = sources("tests")
        .into_iter()
        .filter(|source| source.path != file!())
        .filter(|source| {
            let calls = ["sleep(", "waitForTimeout("];
            calls.iter().any(|call| source.code.contains(call))
        })
        .map(|source| format!("{} sleeps: wait for the event instead", source.path))
        .collect();
    assert_none(&offences);
}
