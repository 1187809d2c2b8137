//! The groups of operations in the API reference, in the order in which it shows them.

/// A group of operations.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub name: &'static str,
    /// Markdown.
    pub description: &'static str,
}

pub const BROWSERS: &str = "Browsers";
pub const POOLS: &str = "Pools";
pub const AUTOMATION: &str = "Automation";
pub const DEVTOOLS: &str = "DevTools";
pub const CREDENTIALS: &str = "Credentials";
pub const AUTH_CONNECTIONS: &str = "Auth connections";
pub const COMPUTER: &str = "Input and screen";
pub const LIVE_VIEW: &str = "Live view";
pub const REPLAYS: &str = "Replays";
pub const FILES: &str = "Files";
pub const PROCESSES: &str = "Processes";
pub const LOGS: &str = "Logs";
pub const CHROMIUM: &str = "Chromium";
pub const DISPLAY: &str = "Display";
pub const USER_DATA: &str = "User data";
pub const PROFILES: &str = "Profiles";
pub const SESSION: &str = "Session";
pub const PROJECTS: &str = "Projects";
pub const API_KEYS: &str = "API keys";
pub const FLEET: &str = "Fleet";
pub const AUTHENTICATION: &str = "Authentication";
pub const AUDIT_LOG: &str = "Audit log";
pub const WEBHOOKS: &str = "Webhooks";
pub const SERVER: &str = "Server";

/// All groups. A server's document lists those that it has an operation of.
pub const ALL: [Group; 24] = [
    Group {
        name: BROWSERS,
        description: "A browser is a Chromium with its own profile, display and files, run by an \
            agent. It lives until it is deleted, or until its timeout passes without use.",
    },
    Group {
        name: POOLS,
        description: "A pool starts browsers ahead of time. A client acquires one, which is then a \
            browser like any other, and releases it.",
    },
    Group {
        name: AUTOMATION,
        description: "Run TypeScript or JavaScript with Playwright beside the browser. Each call \
            runs in a new, confined process that is already connected to the browser.",
    },
    Group {
        name: DEVTOOLS,
        description: "Connect a Chrome DevTools Protocol client, such as Playwright or \
            Puppeteer, to the browser or to one of its tabs.",
    },
    Group {
        name: COMPUTER,
        description: "Control the mouse, the keyboard and the clipboard, and take screenshots. \
            Positions are in pixels of the screen, from its top left corner. Without a display \
            the same actions go to the page in front.",
    },
    Group {
        name: LIVE_VIEW,
        description: "Watch and control a browser from a web page.",
    },
    Group {
        name: REPLAYS,
        description: "Record the screen as an MP4 video, and list, play and download recordings.",
    },
    Group {
        name: FILES,
        description: "Read, write, transfer and watch files beside the browser. Paths are \
            absolute. The files of the agent itself are 403.",
    },
    Group {
        name: PROCESSES,
        description: "Run programs beside the browser, stream their output, and attach to their \
            terminals.",
    },
    Group {
        name: LOGS,
        description: "Stream the logs of the browser and of its agent.",
    },
    Group {
        name: CHROMIUM,
        description: "Inspect and restart Chromium.",
    },
    Group {
        name: DISPLAY,
        description: "Change the size of the screen.",
    },
    Group {
        name: USER_DATA,
        description: "Archive and restore the complete Chromium profile.",
    },
    Group {
        name: PROFILES,
        description: "A profile is a stored user-data directory: cookies, storage, logins. A browser \
            can start with it, and be saved to it, while it runs or when it ends. Each save is a \
            new version; a profile can return to an earlier one.",
    },
    Group {
        name: CREDENTIALS,
        description: "A credential has the secrets that log in to a site: user name, password and the \
            like, and the secret of one-time codes. Values are stored encrypted, or stay with a \
            provider such as a password manager. They are written into pages, and never returned.",
    },
    Group {
        name: AUTH_CONNECTIONS,
        description: "An auth connection logs a profile in to a site, by a credential or with the \
            help of a person, and keeps it logged in.",
    },
    Group {
        name: SESSION,
        description: "A session is one use of the agent, from its start or the end of the session \
            before. The header `Berth-Generation` of a request names the session that it is for; \
            once that has ended, the request fails with 410 `session_ended`.",
    },
    Group {
        name: PROJECTS,
        description: "A project separates browsers, replays and keys from those of other projects. \
            A request is about the project that its key is bound to, or that its `X-Project-Id` \
            header names, or about the default project.",
    },
    Group {
        name: API_KEYS,
        description: "Create, rotate and delete API keys. A key that is bound to a project sees \
            and creates only keys of that project.",
    },
    Group {
        name: FLEET,
        description: "Hosts that register themselves, such as VMs with an agent, and the join \
            tokens with which they register. Requires an API key that is not bound to a project.",
    },
    Group {
        name: AUTHENTICATION,
        description: "Inspect the credential of a request.",
    },
    Group {
        name: AUDIT_LOG,
        description: "Search and export the log of the requests that changed something, and of \
            failed authentications. Requires an API key that is not bound to a project.",
    },
    Group {
        name: WEBHOOKS,
        description: "A webhook is an endpoint of yours that receives events about browsers, their \
            profiles and their replays, signed and at least once. Requires an API key that is not \
            bound to a project.",
    },
    Group {
        name: SERVER,
        description: "The state of the server itself.",
    },
];
