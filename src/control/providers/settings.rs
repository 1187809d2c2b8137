//! The settings of credential providers, and of requests to them.

use std::path::PathBuf;

use url::Url;

use super::check_base_url;
use crate::{
    api::credential_providers::ProviderType,
    system::outbound::{AddressPolicy, AllowedNetwork, OutboundOptions},
};

/// The options of credential providers.
#[derive(Debug, Clone, clap::Args)]
pub struct ProviderSettings {
    /// Addresses or networks, separated by commas, that requests to credential providers and
    /// webhooks, and the pages of logins, may reach besides the public internet; requests also
    /// without TLS [default: none, with `berth dev` this machine]
    #[arg(
        long,
        env = "BERTH_ALLOW_NETWORKS",
        value_delimiter = ',',
        value_name = "ADDR|NETWORK"
    )]
    pub allow_networks: Vec<AllowedNetwork>,

    /// PEM file with authorities that certify credential providers and webhooks besides those of
    /// the system
    #[arg(long, env = "BERTH_PROVIDER_CA_FILE", value_name = "FILE")]
    pub provider_ca_file: Option<PathBuf>,

    /// Base URL of providers of the type `kv` that are created without one
    #[arg(long, env = "BERTH_KV_URL", value_parser = base_url, value_name = "URL")]
    pub kv_url: Option<Url>,

    /// Base URL of providers of the type `vendorpassword` that are created without one
    #[arg(long, env = "BERTH_VENDORPASSWORD_URL", value_parser = base_url, value_name = "URL")]
    pub vendorpassword_url: Option<Url>,
}

fn base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    check_base_url(&url)?;
    Ok(url)
}

/// The base URLs of providers that are created without one.
#[derive(Debug, Clone, Default)]
pub struct ProviderDefaults {
    kv: Option<Url>,
    vendorpassword: Option<Url>,
}

impl ProviderDefaults {
    #[must_use]
    pub fn of(&self, provider_type: ProviderType) -> Option<&Url> {
        match provider_type {
            ProviderType::Kv => self.kv.as_ref(),
            ProviderType::VendorPassword => self.vendorpassword.as_ref(),
        }
    }
}

/// The validated settings.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettingsConfig {
    pub allowed_networks: Vec<AllowedNetwork>,
    pub ca_file: Option<PathBuf>,
    pub defaults: ProviderDefaults,
}

impl ProviderSettings {
    #[must_use]
    pub fn config(&self) -> ProviderSettingsConfig {
        ProviderSettingsConfig {
            allowed_networks: self.allow_networks.clone(),
            ca_file: self.provider_ca_file.clone(),
            defaults: ProviderDefaults {
                kv: self.kv_url.clone(),
                vendorpassword: self.vendorpassword_url.clone(),
            },
        }
    }
}

impl ProviderSettingsConfig {
    /// Returns the options of the client that sends requests to providers.
    #[must_use]
    pub fn outbound_options(&self) -> OutboundOptions {
        OutboundOptions {
            policy: AddressPolicy::new(self.allowed_networks.clone()),
            ca_file: self.ca_file.clone(),
            ..OutboundOptions::default()
        }
    }
}
