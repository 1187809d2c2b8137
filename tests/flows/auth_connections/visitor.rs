//! A visitor of the login sites over plain HTTP, without a browser.

use std::collections::BTreeMap;

use reqwest::{
    Client, Method, Url,
    header::{COOKIE, HOST, LOCATION, SET_COOKIE},
    redirect::Policy,
};
use serde_json::Value;

use crate::support::{login_sites::LoginSites, wait::in_time};

const MAX_REDIRECTS: usize = 8;

/// The cookies of a visitor, by the host that they are sent to and by name. Those with the
/// attribute `Domain` are stored under that domain, and are sent to it alone.
pub(super) struct Visitor<'a> {
    sites: &'a LoginSites,
    http: Client,
    cookies: BTreeMap<(String, String), String>,
}

/// A page after its redirects.
pub(super) struct VisitedPage {
    pub(super) url: Url,
    pub(super) status: u16,
    pub(super) html: String,
}

impl VisitedPage {
    /// Returns the text of the element with the role `alert`.
    pub(super) fn alert(&self) -> Option<&str> {
        let (_, rest) = self.html.split_once("role=alert>")?;
        rest.split_once('<').map(|(text, _)| text)
    }
}

impl<'a> Visitor<'a> {
    pub(super) fn new(sites: &'a LoginSites) -> Visitor<'a> {
        let http = Client::builder().redirect(Policy::none());
        Visitor {
            sites,
            http: http.build().unwrap(),
            cookies: BTreeMap::new(),
        }
    }

    pub(super) async fn open(&mut self, site: &str, path: &str) -> VisitedPage {
        let url = self.sites.url(site, path).parse().unwrap();
        self.follow(Method::GET, url, &[]).await
    }

    pub(super) async fn submit(
        &mut self,
        site: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> VisitedPage {
        let url = self.sites.url(site, path).parse().unwrap();
        self.follow(Method::POST, url, fields).await
    }

    /// Returns the user name of the session on a site.
    pub(super) async fn user(&mut self, site: &str) -> Option<String> {
        let page = self.open(site, "/whoami").await;
        let answer: Value = serde_json::from_str(&page.html).unwrap();
        answer["user"].as_str().map(str::to_owned)
    }

    /// Returns the names of the cookies for a host.
    pub(super) fn cookie_names(&self, host: &str) -> Vec<&str> {
        let own = self.cookies.keys().filter(|(its_host, _)| its_host == host);
        own.map(|(_, name)| name.as_str()).collect()
    }

    /// Sends a request, and follows the redirects to the sites.
    async fn follow(
        &mut self,
        mut method: Method,
        mut url: Url,
        fields: &[(&str, &str)],
    ) -> VisitedPage {
        for _ in 0..MAX_REDIRECTS {
            let (page, location) = self.send(method, url, fields).await;
            match location {
                Some(location) if location.host_str().unwrap().ends_with(".test") => {
                    (method, url) = (Method::GET, location);
                }
                Some(location) => {
                    return VisitedPage {
                        url: location,
                        ..page
                    };
                }
                None => return page,
            }
        }
        panic!("more than {MAX_REDIRECTS} redirects");
    }

    async fn send(
        &mut self,
        method: Method,
        url: Url,
        fields: &[(&str, &str)],
    ) -> (VisitedPage, Option<Url>) {
        let site = url.host_str().unwrap().to_owned();
        let host = format!("{site}:{}", self.sites.port());
        let mut address = url.clone();
        address.set_host(Some("127.0.0.1")).unwrap();
        let own = self.cookies.iter().filter(|((host, _), _)| *host == site);
        let cookies: Vec<String> = own
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        let mut request = self
            .http
            .request(method.clone(), address)
            .header(HOST, host)
            .header(COOKIE, cookies.join("; "));
        if method == Method::POST {
            let mut body = url::form_urlencoded::Serializer::new(String::new());
            body.extend_pairs(fields);
            let form_type = "application/x-www-form-urlencoded";
            request = request
                .header("content-type", form_type)
                .body(body.finish());
        }
        let response = in_time("a page", request.send()).await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            self.store(&site, cookie.to_str().unwrap());
        }
        let location = response.headers().get(LOCATION);
        let location = location.map(|it| url.join(it.to_str().unwrap()).unwrap());
        let status = response.status().as_u16();
        let html = in_time("the page's text", response.text()).await.unwrap();
        (VisitedPage { url, status, html }, location)
    }

    fn store(&mut self, site: &str, cookie: &str) {
        let mut parts = cookie.split("; ");
        let (name, value) = parts.next().unwrap().split_once('=').unwrap();
        let attributes: Vec<&str> = parts.collect();
        assert!(attributes.contains(&"HttpOnly"), "{cookie}");
        let mut domains = attributes
            .iter()
            .filter_map(|it| it.strip_prefix("Domain="));
        let key = (domains.next().unwrap_or(site).to_owned(), name.to_owned());
        match attributes.contains(&"Max-Age=0") {
            true => self.cookies.remove(&key),
            false => self.cookies.insert(key, value.to_owned()),
        };
        let is_lasting = attributes.iter().any(|it| it.starts_with("Max-Age="));
        assert!(is_lasting || name != "session", "{cookie}");
    }
}
