"use strict";

Scalar.createApiReference("#reference", {
  url: "../openapi.json",
  servers: [{ url: window.location.origin }],

  // The page makes no request to another server: no fonts, telemetry, request proxy or assistant.
  // The Content-Security-Policy of the page enforces the same.
  withDefaultFonts: false,
  telemetry: false,
  proxyUrl: "",
  agent: { disabled: true },
  mcp: { disabled: true },
  externalUrls: { dashboardUrl: "", registryUrl: "", proxyUrl: "", apiBaseUrl: "" },
  hideClientButton: true,
  showDeveloperTools: "never",

  // One theme, and the order of the document: groups, operations and fields are sorted there.
  theme: "none",
  layout: "modern",
  forceDarkModeState: "light",
  hideDarkModeToggle: true,
  orderSchemaPropertiesBy: "preserve",
  documentDownloadType: "json",
  modelsSectionLabel: "Schemas",

  authentication: { preferredSecurityScheme: "bearer" },
  featuredClients: ["shell/curl", "python/requests", "node/fetch", "go/native"],
  defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
});
