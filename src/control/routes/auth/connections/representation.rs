//! The API representation of auth connections and their logins.

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::to_credential;
use crate::{
    api::{
        auth_connections::{AuthConnection, AuthConnectionFlow},
        auth_flow::{ManagedAuthState, StreamedStep},
        ids::AuthConnectionId,
        time::Timestamp,
    },
    control::{
        Control,
        auth_connections::AuthConnectionDetails,
        routes::{authentication::Principal, public_base_url::PublicBaseUrl},
        session_token::{Scope, SessionTokens},
        store::AuthFlowRow,
    },
    http::ApiError,
};

/// The part of the representation that is not in the rows.
pub(super) struct ConnectionContext {
    tokens: SessionTokens,
    base_url: PublicBaseUrl,
}

impl FromRequestParts<Control> for ConnectionContext {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, control: &Control) -> Result<Self, ApiError> {
        Ok(ConnectionContext {
            tokens: control.tokens.clone(),
            base_url: PublicBaseUrl::from_request_parts(parts, control).await?,
        })
    }
}

impl ConnectionContext {
    /// Converts a connection with its newest login.
    pub(super) fn to_connection(
        &self,
        details: AuthConnectionDetails,
        flow: Option<&AuthFlowRow>,
        principal: &Principal,
    ) -> AuthConnection {
        let AuthConnectionDetails { row, reauth_reason } = details;
        let settings = row.settings;
        AuthConnection {
            id: row.id,
            domain: row.domain,
            profile_name: row.profile_name,
            status: row.status,
            record_session: settings.record_session,
            save_credentials: settings.save_credentials,
            allowed_domains: settings.allowed_domains,
            auto_reauth: settings.auto_reauth,
            can_reauth: reauth_reason.permits_reauth(),
            can_reauth_reason: reauth_reason,
            credential: settings.credential.map(to_credential),
            login_url: settings.login_url,
            post_login_url: row.post_login_url,
            health_checks: settings.health_checks,
            health_check_interval: settings.health_check_interval,
            last_auth_at: row.last_auth_at.map(Timestamp::from),
            last_auth_check_at: row.last_auth_check_at.map(Timestamp::from),
            next_auth_check_at: row
                .health
                .check_at
                .filter(|_| settings.health_checks)
                .map(Timestamp::from),
            next_reauth_at: row
                .health
                .reauth_at
                .filter(|_| settings.auto_reauth)
                .map(Timestamp::from),
            session_expires_at: row.health.expiry.map(|expiry| expiry.at.into()),
            browser_session_id: row.browser_id,
            flow: flow.map_or_else(AuthConnectionFlow::default, |flow| {
                self.to_flow(flow, principal)
            }),
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }

    /// Adds the URLs for a reader to the state of a login.
    pub(super) fn with_urls(
        &self,
        state: ManagedAuthState,
        row: &AuthFlowRow,
        principal: &Principal,
    ) -> ManagedAuthState {
        ManagedAuthState {
            hosted_url: self.hosted_url(row),
            live_view_url: self.live_view_url(row, state.flow_step, principal),
            ..state
        }
    }

    fn to_flow(&self, row: &AuthFlowRow, principal: &Principal) -> AuthConnectionFlow {
        let state = row.flow.state();
        let live_view_url = self.live_view_url(row, state.flow_step, principal);
        AuthConnectionFlow {
            flow_status: Some(state.flow_status),
            flow_step: Some(row.flow.step()),
            flow_type: Some(state.flow_type),
            flow_expires_at: Some(row.flow.expires_at().into()),
            actor: Some(state.actor),
            deadline: state.deadline,
            requested: state.requested,
            hosted_url: self.hosted_url(row),
            live_view_url,
            website_error: state.website_error,
            error_code: state.error_code,
            error_message: state.error_message,
            sso_provider: row.flow.sso_provider().map(str::to_owned),
        }
    }

    /// Returns the hosted login page with a code.
    pub(super) fn page_with_code(&self, id: &AuthConnectionId, code: &str) -> String {
        format!("{}#code={code}", self.base_url.login_page(id))
    }

    /// Returns the hosted login page, while the login is in progress.
    fn hosted_url(&self, row: &AuthFlowRow) -> Option<String> {
        let is_active = row.ended_at.is_none();
        is_active.then(|| self.base_url.login_page(&row.connection_id))
    }

    /// Returns the page with the live screen, while the login is in progress. A person gets it only
    /// when they have to act there: it controls the whole browser.
    fn live_view_url(
        &self,
        row: &AuthFlowRow,
        step: StreamedStep,
        principal: &Principal,
    ) -> Option<String> {
        if principal.flow().is_some() && step != StreamedStep::AwaitingExternalAction {
            return None;
        }
        let browser = row.flow.browser().filter(|_| row.ended_at.is_none())?;
        let issuer = &principal.issuer;
        let token = self
            .tokens
            .issue(issuer, browser, &row.project_id, &Scope::Live);
        Some(self.base_url.page(browser, "/live", &token))
    }
}
