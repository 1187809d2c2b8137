//! The settings of the hosted login page: its appearance, and the origins that may embed it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use bytes::Bytes;
use url::Url;

use crate::api::login_theme::{LoginTheme, ThemeColor};

/// The longest name in code points.
const MAX_NAME_LENGTH: usize = 60;
/// The largest size of the logo in bytes. It is part of the first paint.
const MAX_LOGO_BYTES: u64 = 32 << 10;
/// The most origins that may embed the page.
const MAX_FRAME_ORIGINS: usize = 32;
const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The options of the login page.
#[derive(Debug, Clone, clap::Args)]
pub struct LoginPageSettings {
    /// Name of the product that sends people to the login page, at most 60 characters
    #[arg(long, env = "BERTH_LOGIN_NAME", value_parser = product_name, value_name = "NAME")]
    pub login_name: Option<String>,

    /// Logo on the login page: an SVG or PNG file of at most 32 KiB
    #[arg(long, env = "BERTH_LOGIN_LOGO_FILE", value_name = "FILE")]
    pub login_logo_file: Option<PathBuf>,

    /// Color of buttons and links on the login page, #RRGGBB; or two separated by a comma, for
    /// light and dark
    #[arg(long, env = "BERTH_LOGIN_ACCENT", value_parser = color, value_name = "COLOR")]
    pub login_accent: Option<ThemeColor>,

    /// Color behind the card of the login page, like --login-accent
    #[arg(long, env = "BERTH_LOGIN_BACKGROUND", value_parser = color, value_name = "COLOR")]
    pub login_background: Option<ThemeColor>,

    /// Origins whose pages may embed the login page, separated by commas [default: none]
    #[arg(
        long,
        env = "BERTH_LOGIN_FRAME_ORIGINS",
        value_delimiter = ',',
        value_name = "ORIGIN"
    )]
    pub login_frame_origins: Vec<FrameOrigin>,
}

/// The validated settings of the login page.
#[derive(Debug, Clone, Default)]
pub struct LoginPageConfig {
    pub theme: LoginTheme,
    pub logo: Option<LoginLogo>,
    pub frame_origins: Vec<FrameOrigin>,
}

/// The image on the login page.
#[derive(Debug, Clone)]
pub enum LoginLogo {
    Svg(Bytes),
    Png(Bytes),
}

/// Why the settings of the login page are invalid.
#[derive(Debug, thiserror::Error)]
pub enum LoginPageSettingsError {
    #[error("--login-logo-file: {path}: {source}")]
    UnreadableLogo { path: PathBuf, source: io::Error },
    #[error("--login-logo-file: {path} has {size} bytes, at most {MAX_LOGO_BYTES}")]
    LogoTooLarge { path: PathBuf, size: u64 },
    #[error("--login-logo-file: {0} is neither an SVG nor a PNG image")]
    NoImage(PathBuf),
    #[error("--login-frame-origins: at most {MAX_FRAME_ORIGINS} origins")]
    TooManyFrameOrigins,
}

impl LoginPageSettings {
    /// Validates the settings and reads the logo.
    pub fn check(&self) -> Result<LoginPageConfig, LoginPageSettingsError> {
        if self.login_frame_origins.len() > MAX_FRAME_ORIGINS {
            return Err(LoginPageSettingsError::TooManyFrameOrigins);
        }
        let logo = self.login_logo_file.as_deref().map(read_logo).transpose()?;
        Ok(LoginPageConfig {
            theme: LoginTheme {
                name: self.login_name.clone(),
                has_logo: logo.is_some(),
                accent: self.login_accent.clone(),
                background: self.login_background.clone(),
            },
            logo,
            frame_origins: self.login_frame_origins.clone(),
        })
    }
}

fn read_logo(path: &Path) -> Result<LoginLogo, LoginPageSettingsError> {
    let unreadable = |source| LoginPageSettingsError::UnreadableLogo {
        path: path.to_owned(),
        source,
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(LoginPageSettingsError::NoImage(path.to_owned()));
    }
    if metadata.len() > MAX_LOGO_BYTES {
        return Err(LoginPageSettingsError::LogoTooLarge {
            path: path.to_owned(),
            size: metadata.len(),
        });
    }
    let content = Bytes::from(fs::read(path).map_err(unreadable)?);
    if content.starts_with(PNG_SIGNATURE) {
        return Ok(LoginLogo::Png(content));
    }
    match std::str::from_utf8(&content) {
        Ok(text) if text.contains("<svg") => Ok(LoginLogo::Svg(content)),
        _ => Err(LoginPageSettingsError::NoImage(path.to_owned())),
    }
}

fn product_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME_LENGTH || name.chars().any(char::is_control) {
        return Err(format!(
            "must be 1 to {MAX_NAME_LENGTH} characters, none of them a control character"
        ));
    }
    Ok(name.to_owned())
}

fn color(text: &str) -> Result<ThemeColor, String> {
    let (light, dark) = text.split_once(',').unwrap_or((text, text));
    let one = |text: &str| {
        let text = text.trim();
        let digits = text.strip_prefix('#').unwrap_or_default();
        let is_valid = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_valid.then(|| text.to_ascii_lowercase())
    };
    match (one(light), one(dark)) {
        (Some(light), Some(dark)) => Ok(ThemeColor { light, dark }),
        _ => Err("must be #RRGGBB, or two of these separated by a comma".to_owned()),
    }
}

/// An origin whose pages may embed the login page, as in a content security policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameOrigin(String);

impl FrameOrigin {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FrameOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<FrameOrigin, String> {
        let invalid = || "must be an origin, such as https://app.example.com".to_owned();
        let url = Url::parse(text).map_err(|_| invalid())?;
        let is_origin = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        // Separators of a policy are valid in the host of a URL.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte);
        let host = url.host_str().unwrap_or_default();
        if !is_origin || host.is_empty() || !host.bytes().all(is_plain) {
            return Err(invalid());
        }
        match url.scheme() {
            "https" => Ok(FrameOrigin(url.origin().ascii_serialization())),
            "http" if crate::loopback::is_loopback(&url) => {
                Ok(FrameOrigin(url.origin().ascii_serialization()))
            }
            _ => Err("must be https, or http on this machine".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        settings: LoginPageSettings,
    }

    fn check(arguments: &[&str]) -> Result<LoginPageConfig, String> {
        let arguments = [&["program"], arguments].concat();
        let options = Options::try_parse_from(arguments).map_err(|error| error.to_string())?;
        options.settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn default_has_no_theme_and_no_frame_origin() {
        let config = check(&[]).unwrap();
        assert_eq!(config.theme, LoginTheme::default());
        assert!(config.logo.is_none() && config.frame_origins.is_empty());
    }

    #[test]
    fn name_and_colors_are_validated() {
        let config = check(&[
            "--login-name= Acme ",
            "--login-accent=#0B6E4F",
            "--login-background=#ffffff, #000000",
        ]);
        let theme = config.unwrap().theme;
        assert_eq!(theme.name.as_deref(), Some("Acme"));
        let accent = theme.accent.unwrap();
        assert_eq!(
            (accent.light.as_str(), accent.dark.as_str()),
            ("#0b6e4f", "#0b6e4f")
        );
        assert_eq!(theme.background.unwrap().dark, "#000000");
        for bad in [
            "--login-name= ",
            "--login-name=a\nb",
            &format!("--login-name={}", "é".repeat(61)),
            "--login-accent=red",
            "--login-accent=#fff",
            "--login-accent=#00000g",
            "--login-background=#ffffff,",
            "--login-background=#ffffff,#ffffff,#ffffff",
        ] {
            assert!(check(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn frame_origins_are_validated() {
        let list = "https://app.example.com,https://[::1]:8443/,http://localhost:3000";
        let config = check(&["--login-frame-origins", list]).unwrap();
        let origins: Vec<&str> = config
            .frame_origins
            .iter()
            .map(FrameOrigin::as_str)
            .collect();
        assert_eq!(
            origins,
            [
                "https://app.example.com",
                "https://[::1]:8443",
                "http://localhost:3000"
            ]
        );
        for bad in [
            "",
            "app.example.com",
            "*",
            "https://*.example.com",
            "https://a;script-src",
            "https://a/path",
            "https://a/?query",
            "https://a/#fragment",
            "https://user@a",
            "http://app.example.com",
            "data:text/html,a",
            "file:///a",
        ] {
            let option = format!("--login-frame-origins={bad}");
            assert!(check(&[&option]).is_err(), "{bad}");
        }
        let many = ["https://a.example"; MAX_FRAME_ORIGINS + 1].join(",");
        assert!(check(&["--login-frame-origins", &many]).is_err());
    }

    #[test]
    fn logo_is_a_small_image() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("logo");
        let option = format!("--login-logo-file={}", file.display());
        let checked = |content: &[u8]| {
            fs::write(&file, content).unwrap();
            check(&[&option])
        };
        let missing = check(&[&option]).unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
        let svg = checked(b"<?xml version='1.0'?><svg/>").unwrap();
        assert!(svg.theme.has_logo && matches!(svg.logo, Some(LoginLogo::Svg(_))));
        let png = checked(&[PNG_SIGNATURE, b"\0\xff"].concat()).unwrap();
        assert!(matches!(png.logo, Some(LoginLogo::Png(_))));
        for bad in [&b""[..], b"<html>", b"\xff<svg"] {
            let error = checked(bad).unwrap_err();
            assert!(error.contains("neither an SVG nor a PNG"), "{error}");
        }
        let large = checked(&vec![b' '; 33 << 10]).unwrap_err();
        assert!(large.contains("at most 32768"), "{large}");
        let error = check(&[&format!("--login-logo-file={}", directory.path().display())]);
        assert!(error.unwrap_err().contains("neither"));
    }
}
