//! Logins of auth connections.
//!
//! - `by_credential`: logins with stored credentials
//! - `readers`: the time until clients see a change of a login

mod by_credential;
mod readers;

use crate::{
    figures::Figures,
    fixtures::{Agent, Result},
};

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    by_credential::measure(figures, agent).await?;
    readers::measure(figures).await
}
