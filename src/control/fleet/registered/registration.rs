//! The registration of a host, which gives it an identity.
//!
//! An unknown host registers with a join token, and takes a use of it. A known one proves its key
//! instead, and keeps its id: when its agent starts, and to renew its certificate.

use std::{collections::BTreeMap, time::Duration};

use chrono::Utc;

use super::{
    JoinTokenError,
    hosts::{FleetError, RegisteredHosts, returned, without_session},
    join_tokens::FORMAT,
    launch,
};
use crate::{
    api::{
        fleet::RegisterHost,
        ids::{HostId, LaunchId},
    },
    control::store::{
        HostLaunchRow, HostMachine, JoinTokenRow, NewRegisteredHost, RegisteredHostRow, StoreError,
        UniqueConstraint,
    },
    system::identity::{CertificateRequest, HostPublicKey, IssuedCertificate, TokenAudience},
};

/// The lifetime of a host's certificate.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The domain of the names of hosts in their certificates. `.internal` is reserved for private use.
const HOST_DOMAIN: &str = "host.berth.internal";
/// The label of launched hosts, with the id of the launch.
const LAUNCH_LABEL: &str = "launch_id";

/// The authenticated sender of a registration.
#[derive(Debug, Clone)]
pub enum Registrant {
    /// A host that control does not know.
    JoinToken(JoinTokenRow),
    /// A host that control has launched, with the join token of the launch.
    Launch(LaunchId),
    /// A host that has proved its key.
    Host(Box<RegisteredHostRow>),
}

/// A host after its registration.
#[derive(Debug, Clone)]
pub struct Registered {
    pub host: HostId,
    pub certificate: IssuedCertificate,
    /// The certificate of the authority.
    pub ca_certificate: String,
}

impl RegisteredHosts {
    /// Verifies the bearer token of a registration: a join token, or a token of a host's own key.
    pub async fn authenticate_registration(&self, token: &str) -> Result<Registrant, FleetError> {
        if token.starts_with(FORMAT.prefix) {
            return match self.join_tokens.authenticate(token).await {
                Err(JoinTokenError::Invalid) => self.authenticate_launch(token).await,
                found => Ok(Registrant::JoinToken(found?)),
            };
        }
        let audience = TokenAudience::Registration;
        let key = self.host_tokens.verify(token, audience);
        let key = key.map_err(|_| FleetError::InvalidHostToken)?;
        let row = self.store.find_registered_host_by_key(&key).await?;
        let row = row.ok_or(FleetError::UnknownHost)?;
        Ok(Registrant::Host(Box::new(row)))
    }

    /// Verifies the join token of a launch.
    async fn authenticate_launch(&self, token: &str) -> Result<Registrant, FleetError> {
        let public_part = FORMAT.public_part(token).ok_or(JoinTokenError::Invalid)?;
        let found = self.store.find_host_launch_by_token(public_part).await?;
        let is_valid = |row: &HostLaunchRow| launch::accepts(row, token, Utc::now());
        let row = found.filter(is_valid).ok_or(JoinTokenError::Invalid)?;
        Ok(Registrant::Launch(row.id))
    }

    /// Registers a host and issues its certificate, whose name is derived from the host's id.
    pub async fn register(
        &self,
        registrant: Registrant,
        request: RegisterHost,
    ) -> Result<Registered, FleetError> {
        let certificate_request =
            CertificateRequest::from_pem(request.certificate_request.as_str())
                .map_err(FleetError::InvalidRequest)?;
        let key = certificate_request.public_key();
        let machine = HostMachine {
            address: request.address.get(),
            boot_id: request.boot_id.as_str().to_owned(),
            version: request.version.as_str().to_owned(),
            capabilities: request.capabilities,
        };
        let host = match registrant {
            Registrant::JoinToken(token) => self.admit(&token, key, machine).await?,
            Registrant::Launch(launch) => self.admit_launched(&launch, key, machine).await?,
            Registrant::Host(row) if row.public_key == *key => self.renew(*row, &machine).await?,
            Registrant::Host(_) => return Err(FleetError::ForeignKey),
        };
        let (name, now) = (certificate_name(random_part(&host)), Utc::now());
        let issued =
            self.authority
                .issue_server(&certificate_request, &name, now, CERTIFICATE_LIFETIME);
        Ok(Registered {
            host,
            certificate: issued.map_err(FleetError::Certificate)?,
            ca_certificate: self.authority.certificate().to_owned(),
        })
    }

    /// Creates a host on behalf of a join token.
    async fn admit(
        &self,
        token: &JoinTokenRow,
        key: &HostPublicKey,
        machine: HostMachine,
    ) -> Result<HostId, FleetError> {
        let address = machine.address;
        let new = NewRegisteredHost {
            machine,
            labels: token.labels.clone(),
            public_key: key.clone(),
        };
        let created = self
            .store
            .create_registered_host(&token.id, new, Utc::now());
        let row = admitted(created.await)?;
        tracing::info!(host = %row.id, %address, join_token = %token.id, "host registered");
        Ok(row.id)
    }

    /// Creates the host of a launch.
    async fn admit_launched(
        &self,
        launch: &LaunchId,
        key: &HostPublicKey,
        machine: HostMachine,
    ) -> Result<HostId, FleetError> {
        let address = machine.address;
        let found = self.store.find_host_launch(launch).await?;
        let mode = machine.mode();
        if let Some(row) = found.filter(|row| row.options.mode != mode) {
            let requested = row.options.mode;
            tracing::warn!(%launch, ?requested, ?mode, "launched host has another mode");
        }
        let new = NewRegisteredHost {
            machine,
            labels: BTreeMap::from([(LAUNCH_LABEL.to_owned(), launch.to_string())]),
            public_key: key.clone(),
        };
        let created = self.store.create_launched_host(launch, new, Utc::now());
        let row = admitted(created.await)?;
        tracing::info!(host = %row.id, %address, %launch, "launched host registered");
        Ok(row.id)
    }

    /// Updates a known host. One that was rebooted has lost its session.
    async fn renew(
        &self,
        row: RegisteredHostRow,
        machine: &HostMachine,
    ) -> Result<HostId, FleetError> {
        let after = |row: &RegisteredHostRow| {
            let life = match row.machine.boot_id == machine.boot_id {
                true => returned(&row.life),
                false => without_session(&row.life),
            };
            (machine.clone(), life)
        };
        let row = self.record_report(row, after).await?;
        tracing::info!(
            host = %row.id, address = %row.machine.address, state = ?row.life.state,
            "host registered again"
        );
        Ok(row.id)
    }
}

/// Returns the row of a new host. Fails if its token has no use.
fn admitted(
    created: Result<Option<RegisteredHostRow>, StoreError>,
) -> Result<RegisteredHostRow, FleetError> {
    match created {
        Err(StoreError::UniqueViolation(UniqueConstraint::HostPublicKey)) => {
            Err(FleetError::KeyTaken)
        }
        created => Ok(created?.ok_or(JoinTokenError::Invalid)?),
    }
}

/// Returns the random part of the id of a host, which its certificate and its URLs name.
pub(in crate::control::fleet) fn random_part(id: &HostId) -> &str {
    id.as_str().split_once('_').map_or("", |(_, random)| random)
}

/// Returns the name in the certificate of the host whose id has that random part.
pub(in crate::control::fleet) fn certificate_name(random: &str) -> String {
    format!("{random}.{HOST_DOMAIN}")
}
