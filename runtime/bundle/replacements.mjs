// Removes the parts of Playwright that a client attached over CDP never needs. `replacements` are new bodies for the initialisers
// of modules (which assign the names that the module declares); `patches` are single edits; `pageScripts` names modules that hold a
// script for pages, which is minified. All fail the build if upstream changes.
const core = 'packages/playwright-core/src/';
const utils = 'packages/utils/';
const refuse = (what) => `throw new Error(${JSON.stringify(`${what} is not available in a script`)});`;
const otherBrowser = (Name, type) =>
  `init_browserType(); ${Name} = class extends BrowserType { constructor(parent) { super(parent, '${type}'); } };`;
const otherObject = (Name, type) =>
  `init_instrumentation(); ${Name} = class extends SdkObject { constructor(parent) { super(parent, '${type}'); } };`;

export const replacements = {
  // Launching, other browsers and devices.
  [`${core}server/registry/index.ts`]: `registry = { findExecutable: () => ({ executablePath: () => '' }), isChromiumAlias: () => false };`,
  [`${core}server/android/android.ts`]: otherObject('Android', 'android'),
  [`${core}server/android/backendAdb.ts`]: `AdbBackend = class {};`,
  [`${core}server/bidi/bidiChromium.ts`]: `BidiChromium = class {};`,
  [`${core}server/bidi/bidiFirefox.ts`]: `BidiFirefox = class {};`,
  [`${core}server/electron/electron.ts`]: `${otherObject('Electron', 'electron')} ElectronApplication = class {};`,
  [`${core}server/firefox/firefox.ts`]: otherBrowser('Firefox', 'firefox'),
  [`${core}server/webkit/webkit.ts`]: otherBrowser('WebKit', 'webkit'),
  [`${core}server/debugController.ts`]: otherObject('DebugController', 'DebugController'),
  [`${core}server/dispatchers/androidDispatcher.ts`]: `init_dispatcher();
    AndroidDispatcher = class extends Dispatcher { constructor(scope, object) { super(scope, object, 'Android', {}); } };`,
  [`${core}server/dispatchers/electronDispatcher.ts`]: `init_dispatcher();
    ElectronDispatcher = class extends Dispatcher { constructor(scope, object) { super(scope, object, 'Electron', {}); } };`,
  [`${core}server/dispatchers/localUtilsDispatcher.ts`]: `init_dispatcher(); init_instrumentation(); init_urlMatch(); init_locatorGenerators();
    LocalUtilsDispatcher = class extends Dispatcher {
      constructor(scope, playwright) { super(scope, new SdkObject(playwright, 'localUtils', 'localUtils'), 'LocalUtils', { deviceDescriptors: [] }); }
    };`,
  [`${core}androidServerImpl.ts`]: `AndroidServerLauncherImpl = class {};`,
  [`${core}browserServerImpl.ts`]: `BrowserServerLauncherImpl = class {};`,
  [`${core}server/index.ts`]: `init_playwright(); init_playwrightDispatcher(); init_dispatcher();`,
  [`${core}server/browserType.ts`]: `init_instrumentation();
    BrowserType = class extends SdkObject {
      constructor(parent, name) { super(parent, 'browser-type'); this.attribution.browserType = this; this._name = name; this.logName = 'browser'; }
      executablePath() { return ''; }
      name() { return this._name; }
      async launch() { ${refuse('launching a browser')} }
      async launchPersistentContext() { ${refuse('launching a browser')} }
      async connectOverCDP() { ${refuse('connecting to a browser')} }
      async connectToWorker() { ${refuse('connecting to a worker')} }
    };`,
  [`${core}server/transport.ts`]: `WebSocketTransport = class { static async connect() { ${refuse('connecting to another browser')} } };`,
  [`${core}server/pipeTransport.ts`]: ``,
  [`${core}server/chromium/crDevTools.ts`]: `CRDevTools = class {};`,
  [`${core}client/connect.ts`]: ``,
  [`${utils}processLauncher.ts`]: ``,

  // Recorder, tracing, HAR, video.
  [`${core}server/recorder/recorderApp.ts`]: `RecorderApp = { show: async () => {} }; ProgrammaticRecorderApp = { run: async () => {}, stop: async () => {} };`,
  [`${core}server/recorder.ts`]: `Recorder = class {}; RecorderEvent = {};`,
  [`${core}server/trace/recorder/tracing.ts`]: `init_instrumentation();
    Tracing = class extends SdkObject {
      constructor(context) { super(context, 'tracing'); }
      start() { ${refuse('tracing')} }
      async startChunk() { ${refuse('tracing')} }
      async stopChunk() { return {}; }
      async stop() {}
      group() {}
      groupEnd() {}
      async resetForReuse() {}
      abort() {}
      async flush() {}
      async deleteTmpTracesDir() {}
      harStart() { ${refuse('recording a HAR file')} }
      async harExport() { ${refuse('recording a HAR file')} }
    };`,
  [`${core}server/trace/recorder/snapshotter.ts`]: ``,
  [`${core}server/har/harRecorder.ts`]: ``,
  [`${core}server/har/harTracer.ts`]: ``,
  [`${core}server/harBackend.ts`]: ``,
  [`${core}server/localUtils.ts`]: ``,
  [`${core}server/coverageRecorder.ts`]: ``,
  [`${core}server/videoRecorder.ts`]: ``,

  // Servers, proxies, archives, image formats.
  [`${core}server/socksClientCertificatesInterceptor.ts`]: ``,
  [`${core}server/socksInterceptor.ts`]: ``,
  [`${utils}socksProxy.ts`]: `SocksProxy = class {}; SocksProxy.Events = {}; SocksProxyHandler = class {};`,
  [`${utils}httpServer.ts`]: ``,
  [`${utils}wsServer.ts`]: ``,
  [`${utils}zipFile.ts`]: ``,
  [`${utils}third_party/extractZip.ts`]: ``,
  [`${utils}third_party/lockfile.ts`]: ``,
  [`${utils}serializedFS.ts`]: ``,
  [`${utils}comparators.ts`]: ``,
  [`${utils}webp/webp.ts`]: ``,

  // Facts about the host, which scripts cannot see.
  [`${utils}hostPlatform.ts`]: `hostPlatform = 'ubuntu24.04-x64'; isOfficiallySupportedPlatform = true;`,
  [`${utils}linuxUtils.ts`]: ``,
  [`${core}server/userAgent.ts`]: `cachedUserAgent = 'Playwright/%VERSION%';`,
  [`${core}package.ts`]: `packageRoot = '/playwright-core'; packageJSON = { version: '%VERSION%' }; binPath = '/playwright-core/bin';`,
  'packages/isomorphic/deviceDescriptors.ts': `deviceDescriptors = {};`,
};

export const patches = {
  // The agent passes on why a download is missing.
  [`${core}server/chromium/crBrowser.ts`]: [
    [`this.downloadFinished(payload.guid, this._closeReason || "canceled");`, `this.downloadFinished(payload.guid, payload.reason || this._closeReason || "canceled");`],
  ],
  // Chromium itself opens files that are too long for a message. The others are sent, so that a page may use them after the call.
  [`${core}server/fileUploadUtils.ts`]: [
    [
      `if (await filesExceedUploadLimit(localPaths))
        throw new Error("Cannot transfer files larger than 50Mb to a browser not co-located with the server");
      fileBuffers`,
      `const areLong = await filesExceedUploadLimit(localPaths);
      if (!areLong) fileBuffers`,
    ],
    [`localPaths = void 0;`, `if (!areLong) localPaths = void 0;`],
    // Files of the session, which a script cannot read.
    [`promises.stat(file)).size`, `promises.stat(file).catch(() => ({ size: Infinity }))).size`],
  ],
  [`${core}server/dom.ts`]: [
    [
      `promises.access(localPath, `,
      `promises.stat(localPath).catch((error) => {
            if (error.code !== "EACCES") throw error;
          }, `,
    ],
    // A refusal of the agent is final.
    [
      `await this._page.delegate.setInputFilePaths(progress2, retargeted, localPathsOrDirectory);`,
      `await this._page.delegate.setInputFilePaths(progress2, retargeted, localPathsOrDirectory).catch((error) => {
              throw error.message.includes(": DOM.setFileInputFiles: ") ? new NonRecoverableDOMError(error.message) : error;
            });`,
    ],
  ],
  // The agent checks whether a path outside the script's directory leads to a file of the session.
  [`${core}client/elementHandle.ts`]: [
    [
      `promises.stat(item);
    if (stat.isDirectory()) {`,
      `promises.stat(item).catch((error) => {
      if (error.code !== "EACCES") throw error;
    });
    if (stat?.isDirectory()) {`,
    ],
  ],
  // The host decompresses bodies.
  [`${core}server/fetch.ts`]: [
    [`const encoding = response2.headers["content-encoding"]?.toLowerCase();`, `const encoding = "";`],
  ],
  // Every call of a script into Playwright passes here; `src/calls.ts` lists the pending ones.
  [`${core}client/channelOwner.ts`]: [
    [
      `const result2 = await currentZone().with("apiZone", apiZone).run(async () => await func(apiZone));`,
      `const calls = this._connection.scriptCalls;
          calls?.begin(apiZone);
          let result2;
          try {
            result2 = await currentZone().with("apiZone", apiZone).run(async () => await func(apiZone));
          } finally {
            calls?.end(apiZone);
          }`,
    ],
  ],
};

// Every document whose elements a script uses has to parse this script of 330 kB first.
export const pageScripts = [`${core}generated/injectedScriptSource.ts`];
