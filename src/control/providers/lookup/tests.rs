//! Tests of the search for one item.

use super::*;
use crate::api::credential_providers::ProviderType;

fn item(id: &str, (vault_id, vault_name): (&str, &str), title: &str, urls: &[&str]) -> ItemSummary {
    ItemSummary {
        id: id.to_owned(),
        path: format!("{vault_name}/{title}"),
        title: title.to_owned(),
        vault_id: vault_id.to_owned(),
        vault_name: vault_name.to_owned(),
        urls: urls.iter().map(ToString::to_string).collect(),
    }
}

fn ids_of<'a>(items: impl IntoIterator<Item = &'a ItemSummary>) -> Vec<&'a str> {
    items.into_iter().map(|item| item.id.as_str()).collect()
}

fn config(id: &str) -> ProviderConfig {
    ProviderConfig {
        id: id.to_owned(),
        name: format!("name of {id}"),
        provider_type: ProviderType::Kv,
        base_url: "https://vault.example/".parse().unwrap(),
        token: "token".into(),
        cache_ttl: std::time::Duration::ZERO,
        enabled: true,
        priority: 0,
    }
}

#[test]
fn path_of_names_or_ids_finds_an_item() {
    const TEAM: (&str, &str) = ("v1", "Team");
    let items = [
        item("i1", TEAM, "Login", &[]),
        item("i2", TEAM, "Mail/Work", &[]),
        item("i3", ("v2", "Team/Mail"), "Work", &[]),
        item("i4", ("v3", "Other"), "Twin", &[]),
        item("i5", ("v3", "Other"), "Twin", &[]),
        // Its title is the id of another item.
        item("i6", ("v3", "Other"), "i4", &[]),
    ];
    for (path, expected, matched_by) in [
        ("Team/Login", &["i1"][..], MatchedBy::Path),
        ("Team/i1", &["i1"], MatchedBy::Path),
        ("v1/Login", &["i1"], MatchedBy::Path),
        ("v1/i1", &["i1"], MatchedBy::Id),
        // Two ways to divide the path.
        ("Team/Mail/Work", &["i2", "i3"], MatchedBy::Path),
        ("v1/Mail/Work", &["i2"], MatchedBy::Path),
        ("v2/Work", &["i3"], MatchedBy::Path),
        ("Other/Twin", &["i4", "i5"], MatchedBy::Path),
        ("v3/i4", &["i4"], MatchedBy::Id),
        ("Other/i4", &["i4", "i6"], MatchedBy::Path),
        ("team/login", &[], MatchedBy::Path),
        ("Team", &[], MatchedBy::Path),
        ("Team/", &[], MatchedBy::Path),
        ("/Login", &[], MatchedBy::Path),
        ("Team/Login/", &[], MatchedBy::Path),
        ("v2/i1", &[], MatchedBy::Path),
        ("", &[], MatchedBy::Path),
    ] {
        let (found, by) = match_path(&items, path);
        assert_eq!(
            (ids_of(found), by),
            (expected.to_vec(), matched_by),
            "{path}"
        );
    }
}

#[test]
fn host_of_a_page_finds_items_by_all_urls() {
    const VAULT: (&str, &str) = ("v1", "Team");
    let items = [
        item(
            "exact",
            VAULT,
            "a",
            &["https://x.example/", "https://login.example.com/a?b"],
        ),
        item("domain", VAULT, "b", &["http://www.example.com:8080"]),
        item("bare", VAULT, "c", &["example.org/login"]),
        item("port", VAULT, "d", &["internal:8443/x"]),
        item("address", VAULT, "e", &["https://10.0.0.1/"]),
        item("user", VAULT, "f", &["https://one.github.io"]),
        item("idn", VAULT, "g", &["https://bücher.example.net"]),
        item(
            "other",
            VAULT,
            "h",
            &["not a url", "", "ftp://example.com", "mailto:a@example.com"],
        ),
        item(
            "disguised",
            VAULT,
            "i",
            &[
                "https://example.com@user.test/",
                "https://evil.test/example.com",
            ],
        ),
    ];
    let config = config("prov_a");
    let candidates: Vec<_> = items.iter().map(|item| (&config, item)).collect();
    for (host, expected, matched_by) in [
        ("login.example.com", &["exact"][..], MatchedBy::Host),
        ("LOGIN.Example.COM.", &["exact"], MatchedBy::Host),
        ("www.example.com", &["domain"], MatchedBy::Host),
        ("example.com", &["exact", "domain"], MatchedBy::Domain),
        ("accounts.example.org", &["bare"], MatchedBy::Domain),
        ("internal", &["port"], MatchedBy::Host),
        ("10.0.0.1", &["address"], MatchedBy::Host),
        ("11.0.0.1", &[], MatchedBy::Domain),
        ("one.github.io", &["user"], MatchedBy::Host),
        ("two.github.io", &[], MatchedBy::Domain),
        ("github.io", &[], MatchedBy::Domain),
        ("bücher.example.net", &["idn"], MatchedBy::Host),
        ("xn--bcher-kva.example.net", &["idn"], MatchedBy::Host),
        ("notexample.com", &[], MatchedBy::Domain),
        ("evil.test", &["disguised"], MatchedBy::Host),
        ("user.test", &[], MatchedBy::Domain),
        ("com", &[], MatchedBy::Domain),
    ] {
        let page = PageHost::parse(host).unwrap();
        let (found, by) = match_host(&candidates, &page);
        let found = ids_of(found.into_iter().map(|(_, item)| item));
        assert_eq!((found, by), (expected.to_vec(), matched_by), "{host}");
    }
    for host in ["", ".", "a b", "https://example.com", "[::1"] {
        assert!(PageHost::parse(host).is_none(), "{host}");
    }
}

#[test]
fn several_matches_are_refused_by_name_and_bounded() {
    let config = config("prov_a");
    let items: Vec<_> = (0..13)
        .map(|number| item(&format!("i{number}"), ("v", "Team"), "Login", &[]))
        .collect();
    let candidates = items.iter().map(|item| (&config, item)).collect();
    let error = select(candidates, MatchedBy::Path).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("several items match: Team/Login in name of prov_a (id i0), "));
    assert!(text.ends_with("(id i9) and 3 more"), "{text}");
    let candidates = items[..2].iter().map(|item| (&config, item)).collect();
    let text = select(candidates, MatchedBy::Path).unwrap_err().to_string();
    assert!(text.ends_with("(id i1)"), "{text}");
    assert_eq!(
        select(Vec::new(), MatchedBy::Path),
        Err(LookupError::NotFound)
    );
}
