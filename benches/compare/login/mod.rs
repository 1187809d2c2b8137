//! Logins of auth connections.
//!
//! - `by_credential`: logins with stored credentials
//! - `health`: the health checks of one core
//! - `readers`: the time until clients see a change of a login

mod by_credential;
mod health;
mod readers;

use crate::{
    figures::Figures,
    fixtures::{Agent, Result},
};

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    by_credential::measure(figures, agent).await?;
    health::measure(figures).await?;
    readers::measure(figures).await
}
