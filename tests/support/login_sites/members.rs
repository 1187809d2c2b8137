//! The people that have accounts.

use chrono::Utc;
use totp_rs::{Algorithm, Builder, Secret};
use uuid::Uuid;

/// The time step of one-time codes, in seconds.
const STEP_SECS: u64 = 30;
const DIGITS: u8 = 6;

/// An account, which all sites have. Its values are new in each run, so that no other text has
/// them.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: &'static str,
    /// The user name, which is an email address.
    pub user: String,
    /// The password on each site whose password was not set.
    pub password: String,
    /// The base32 form of the secret of one-time codes.
    pub totp_secret: String,
    /// The answer to the security question.
    pub security_answer: String,
}

impl Member {
    pub(super) fn new(name: &'static str) -> Member {
        let random = || Uuid::new_v4().simple().to_string();
        let first_name = name.split(' ').next().unwrap_or(name).to_lowercase();
        Member {
            name,
            user: format!("{first_name}.{}@example.com", &random()[..8]),
            // No character is escaped in JSON or a URL, so that a search finds each copy.
            password: format!("Canary-{}", random()),
            totp_secret: Secret::from(Uuid::new_v4().as_bytes().to_vec()).to_base32(),
            security_answer: format!("Bucephalus-{}", random()),
        }
    }

    /// Returns the one-time code of the current time.
    pub fn totp_code(&self) -> String {
        self.totp_code_of(current_step())
    }

    /// Returns the time step of a code, if it is of the current one or of one beside it.
    pub(super) fn totp_step_of(&self, code: &str) -> Option<u64> {
        let step = current_step();
        (step - 1..=step + 1).find(|&step| self.totp_code_of(step) == code)
    }

    fn totp_code_of(&self, step: u64) -> String {
        let totp = Builder::new()
            .with_algorithm(Algorithm::SHA1)
            .with_digits(DIGITS)
            .with_step_duration(STEP_SECS)
            .with_secret(Secret::try_from_base32(&self.totp_secret).unwrap())
            .build_noncompliant();
        totp.generate(step * STEP_SECS).to_string()
    }
}

fn current_step() -> u64 {
    u64::try_from(Utc::now().timestamp()).unwrap() / STEP_SECS
}
