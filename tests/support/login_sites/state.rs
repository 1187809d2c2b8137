//! The state of all sites.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use super::members::Member;

const INTERNAL_URL: &str = "http://169.254.169.254/latest/";

/// A form that a site has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedForm {
    pub site: &'static str,
    pub path: String,
    /// The names and values, in their order.
    pub fields: Vec<(String, String)>,
}

#[derive(Clone)]
pub(super) struct SharedState(Arc<Mutex<SitesState>>);

pub(super) struct SitesState {
    members: Vec<Member>,
    /// The passwords that were set, by site and user name.
    passwords: HashMap<(&'static str, String), String>,
    pub(super) received: Vec<ReceivedForm>,
    /// The sessions by the value of their cookie.
    pub(super) sessions: HashMap<String, MemberSession>,
    /// The logins that lack a step, by the value of their cookie.
    pub(super) logins: HashMap<String, PendingLogin>,
    /// The remembered devices, by the value of their cookie.
    pub(super) devices: HashMap<String, MemberSession>,
    /// The codes by text message that the test has not read.
    pub(super) sent_codes: VecDeque<String>,
    /// The last time step whose one-time code a site has accepted, by site and user name.
    last_steps: HashMap<(&'static str, String), u64>,
    /// The members that have changed their expired password.
    pub(super) changed: HashSet<String>,
    /// The tokens of solved captchas, of which each is valid once.
    pub(super) captcha_tokens: HashSet<String>,
    /// The codes of the identity provider, with the site and the user name.
    pub(super) authorizations: HashMap<String, MemberSession>,
    pub(super) redirect_url: String,
    /// The sites that are down.
    pub(super) down: HashSet<&'static str>,
    /// The sites that do not recognize their sessions.
    pub(super) suspended: HashSet<&'static str>,
}

#[derive(Clone)]
pub(super) struct MemberSession {
    pub(super) site: String,
    pub(super) user: String,
}

#[derive(Clone)]
pub(super) struct PendingLogin {
    pub(super) site: &'static str,
    pub(super) user: String,
    /// Whether the password was right.
    pub(super) is_identified: bool,
    pub(super) sms_code: Option<String>,
    /// The number that the page of a push notification shows.
    pub(super) push_number: u32,
    pub(super) is_approved: bool,
}

impl SharedState {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Self(Arc::new(Mutex::new(SitesState {
            members,
            passwords: HashMap::new(),
            received: Vec::new(),
            sessions: HashMap::new(),
            logins: HashMap::new(),
            devices: HashMap::new(),
            sent_codes: VecDeque::new(),
            last_steps: HashMap::new(),
            changed: HashSet::new(),
            captcha_tokens: HashSet::new(),
            authorizations: HashMap::new(),
            redirect_url: INTERNAL_URL.to_owned(),
            down: HashSet::new(),
            suspended: HashSet::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SitesState> {
        self.0.lock()
    }
}

impl SitesState {
    pub(super) fn members(&self) -> Vec<Member> {
        self.members.clone()
    }

    pub(super) fn member(&self, user: &str) -> Option<Member> {
        let mut members = self.members.iter();
        members.find(|member| member.user == user).cloned()
    }

    /// Returns the password of a member on a site.
    pub(super) fn password(&self, site: &str, user: &str) -> String {
        let mut set = self.passwords.iter();
        let set = set.find(|((its_site, its_user), _)| *its_site == site && its_user == user);
        match set {
            Some((_, password)) => password.clone(),
            None => self.member(user).expect("a member").password,
        }
    }

    pub(super) fn set_password(&mut self, site: &'static str, user: &str, password: String) {
        self.passwords.insert((site, user.to_owned()), password);
    }

    pub(super) fn is_password(&self, site: &str, user: &str, password: &str) -> bool {
        self.member(user).is_some() && self.password(site, user) == password
    }

    /// Accepts the one-time code of a member, if it is of a later time step than the last one.
    pub(super) fn accept_totp(&mut self, site: &'static str, user: &str, code: &str) -> bool {
        let step = self.member(user).and_then(|it| it.totp_step_of(code));
        let last = self.last_steps.entry((site, user.to_owned())).or_default();
        match step {
            Some(step) if step > *last => {
                *last = step;
                true
            }
            _ => false,
        }
    }

    /// Sends a code by text message. It replaces the one before.
    pub(super) fn send_code(&mut self, login: &str) {
        let code = format!("{:06}", fastrand::u32(0..1_000_000));
        let Some(login) = self.logins.get_mut(login) else {
            return;
        };
        let before = login.sms_code.replace(code.clone());
        self.sent_codes.retain(|sent| Some(sent) != before.as_ref());
        self.sent_codes.push_back(code);
    }

    /// Approves all logins that wait for it; returns whether there were any.
    pub(super) fn approve_pushes(&mut self) -> bool {
        let pending = self.logins.values_mut();
        let pending = pending.filter(|it| it.site == "push.test" && !it.is_approved);
        let approve = |login: &mut PendingLogin| login.is_approved = true;
        pending.map(approve).count() > 0
    }
}

/// Returns a new value of a cookie or of a code.
pub(super) fn new_token() -> String {
    Uuid::new_v4().simple().to_string()
}
