//! The table of methods. It has every method of Chromium 156, and some of other versions.

use super::Caller;

/// The methods of one domain with the same callers: the domain, the callers, and the methods.
pub(super) type Row = (&'static str, &'static [Caller], &'static str);

/// `Target.*`: gives the protocol to a page or a program past the agent, which owns the only
/// connection. `Tethering.*`: listens on a port that other users of the machine can connect to.
/// `Cast.*`: searches for devices over UDP. Any user of the machine can answer as one, and would
/// receive the picture of a tab.
const REFUSED: &[Caller] = &[];
/// Not available to scripts, among others:
///
/// - `Target.sendMessageToTarget`: carries commands. Those of clients are checked, see
///   [`check_command`](super::check_command).
/// - `Browser.close`, `crash`, `executeBrowserCommand`, `Page.crash`: end what clients share.
/// - `Browser.getBrowserCommandLine`, `SystemInfo.*`, `DOM.getFileInfo`: describe the machine.
/// - `DeviceAccess.*`: answers prompts for devices. Opens nothing to other users of the machine.
/// - `Extensions.*`, `PWA.*`: load and open files by path.
/// - Screens (`Emulation.addScreen`), settings of the whole browser (`Network.setCookieControls`),
///   and states that Chromium does not undo when the script's connection closes
///   (`Emulation.setVirtualTimePolicy`, `Page.setFontSizes`, `Page.setWebLifecycleState`): outlive
///   the script or affect other tabs.
const CLIENT: &[Caller] = &[Caller::Client];
/// The methods that Playwright sends or that scripts call through `newCDPSession`: inspect and
/// change pages, their traffic, storage and emulation, and tabs.
const SCRIPT: &[Caller] = &[Caller::Client, Caller::Script];
/// The methods that Playwright sends on its own, to keep up with the tabs of other clients and to
/// answer the requests that a call intercepts. They do not act in pages.
const IDLE_EXECUTOR: &[Caller] = &[Caller::Client, Caller::Script, Caller::IdleExecutor];
/// Only reports, and neither content of pages nor more addresses than those of tabs and frames.
/// Attaching to a tab is visible to other clients, and so is not included.
const VIEWER: &[Caller] = &[Caller::Client, Caller::Script, Caller::Viewer];
const ALL: &[Caller] = &Caller::ALL;

/// The rows, by domain, and by callers within one.
pub(super) const TABLE: &[Row] = &[
    (
        "Accessibility",
        SCRIPT,
        "disable enable getAXNodeAndAncestors getChildAXNodes getFullAXTree getPartialAXTree \
         getRootAXNode queryAXTree",
    ),
    ("Ads", CLIENT, "getAdMetrics getAdScripts"),
    (
        "Animation",
        SCRIPT,
        "disable enable getCurrentTime getPlaybackRate releaseAnimations resolveAnimation \
         seekAnimations setPaused setPlaybackRate setTiming",
    ),
    ("Audits", CLIENT, "checkContrast"),
    (
        "Audits",
        SCRIPT,
        "checkFormsIssues disable enable getEncodedResponse",
    ),
    ("Autofill", CLIENT, "disable enable setAddresses trigger"),
    (
        "BackgroundService",
        SCRIPT,
        "clearEvents setRecording startObserving stopObserving",
    ),
    (
        "BluetoothEmulation",
        CLIENT,
        "addCharacteristic addDescriptor addService disable enable removeCharacteristic \
         removeDescriptor removeService setSimulatedCentralState simulateAdvertisement \
         simulateCharacteristicOperationResponse simulateDescriptorOperationResponse \
         simulateGATTDisconnection simulateGATTOperationResponse simulatePreconnectedPeripheral",
    ),
    (
        "Browser",
        CLIENT,
        "addMockCamera addPrivacySandboxCoordinatorKeyConfig addPrivacySandboxEnrollmentOverride \
         close crash crashGpuProcess executeBrowserCommand getBrowserCommandLine \
         getGlobalPrivacyControl getHistogram getHistograms setGlobalPrivacyControl",
    ),
    (
        "Browser",
        SCRIPT,
        "grantPermissions resetPermissions setContentsSize setDockTile setPermission",
    ),
    (
        "Browser",
        IDLE_EXECUTOR,
        "cancelDownload setDownloadBehavior setWindowBounds",
    ),
    ("Browser", VIEWER, "getWindowBounds"),
    ("Browser", ALL, "getVersion getWindowForTarget"),
    ("CSS", CLIENT, "setContainerQueryConditionText"),
    (
        "CSS",
        SCRIPT,
        "addRule collectClassNames createStyleSheet disable enable forcePseudoState \
         forceStartingStyle getAnimatedStylesForNode getBackgroundColors getComputedStyleForNode \
         getEnvironmentVariables getInlineStylesForNode getLayersForNode getLocationForSelector \
         getLonghandProperties getMatchedStylesForNode getMediaQueries getPlatformFontsForNode \
         resolveValues setContainerQueryText setEffectivePropertyValueForNode setKeyframeKey \
         setLocalFontsEnabled setMediaText setNavigationText setPropertyRulePropertyName \
         setRuleSelector setScopeText setStyleSheetText setStyleTexts setSupportsText \
         startRuleUsageTracking stopRuleUsageTracking takeComputedStyleUpdates takeCoverageDelta \
         trackComputedStyleUpdates trackComputedStyleUpdatesForNode",
    ),
    ("CSS", IDLE_EXECUTOR, "getStyleSheetText"),
    (
        "CacheStorage",
        SCRIPT,
        "deleteCache deleteEntry requestCacheNames requestCachedResponse requestEntries",
    ),
    (
        "Cast",
        REFUSED,
        "disable enable setSinkToUse startDesktopMirroring startTabMirroring stopCasting",
    ),
    ("Console", SCRIPT, "clearMessages disable enable"),
    ("CrashReportContext", CLIENT, "getEntries"),
    (
        "DOM",
        CLIENT,
        "clearTextMarkers forceShowInterest getFileInfo getImplicitAnchorCandidates setTextMarker",
    ),
    (
        "DOM",
        SCRIPT,
        "collectClassNamesFromSubtree copyTo describeNode disable discardSearchResults enable \
         focus forceShowPopover getAnchorElement getAttributes getBoxModel getContainerForNode \
         getContentQuads getDetachedDomNodes getDocument getElementByRelation \
         getFlattenedDocument getFrameOwner getNodeForLocation getNodeStackTraces \
         getNodesForSubtreeByStyle getOuterHTML getQueryingDescendantsForContainer \
         getRelayoutBoundary getSearchResults getTopLayerElements hideHighlight highlightNode \
         highlightRect markUndoableState moveTo performSearch pushNodeByPathToFrontend \
         pushNodesByBackendIdsToFrontend querySelector querySelectorAll redo removeAttribute \
         removeNode requestChildNodes requestNode resolveNode scrollIntoViewIfNeeded \
         setAttributeValue setAttributesAsText setFileInputFiles setInspectedNode setNodeName \
         setNodeStackTracesEnabled setNodeValue setOuterHTML undo",
    ),
    (
        "DOMDebugger",
        SCRIPT,
        "getEventListeners removeDOMBreakpoint removeEventListenerBreakpoint \
         removeInstrumentationBreakpoint removeXHRBreakpoint setBreakOnCSPViolation \
         setDOMBreakpoint setEventListenerBreakpoint setInstrumentationBreakpoint \
         setXHRBreakpoint",
    ),
    (
        "DOMSnapshot",
        SCRIPT,
        "captureSnapshot disable enable getSnapshot",
    ),
    (
        "DOMStorage",
        SCRIPT,
        "clear disable enable getDOMStorageItems removeDOMStorageItem setDOMStorageItem",
    ),
    (
        "Debugger",
        SCRIPT,
        "continueToLocation disable disassembleWasmModule enable evaluateOnCallFrame \
         getPossibleBreakpoints getStackTrace getWasmBytecode nextWasmDisassemblyChunk pause \
         pauseOnAsyncCall removeBreakpoint restartFrame searchInContent setAsyncCallStackDepth \
         setBlackboxExecutionContexts setBlackboxPatterns setBlackboxedRanges setBreakpoint \
         setBreakpointByUrl setBreakpointOnFunctionCall setBreakpointsActive \
         setInstrumentationBreakpoint setPauseOnExceptions setReturnValue setScriptSource \
         setSkipAllPauses setVariableValue stepInto stepOut stepOver",
    ),
    ("Debugger", IDLE_EXECUTOR, "getScriptSource resume"),
    (
        "DeviceAccess",
        CLIENT,
        "cancelPrompt disable enable selectPrompt",
    ),
    (
        "DeviceOrientation",
        SCRIPT,
        "clearDeviceOrientationOverride setDeviceOrientationOverride",
    ),
    ("DigitalCredentials", CLIENT, "setVirtualWalletBehavior"),
    (
        "Emulation",
        CLIENT,
        "addScreen getScreenInfos removeScreen setCPUPerformanceOverride setPrimaryScreen \
         setVirtualKeyboardGeometryOverride setVirtualTimePolicy setVisibleSize updateScreen",
    ),
    (
        "Emulation",
        SCRIPT,
        "canEmulate clearDeviceMetricsOverride clearDevicePostureOverride \
         clearDisplayFeaturesOverride clearIdleOverride getOverriddenSensorInformation \
         resetPageScaleFactor setAutoDarkModeOverride setAutomationOverride setCPUThrottlingRate \
         setDataSaverOverride setDefaultBackgroundColorOverride setDevicePostureOverride \
         setDisabledImageTypes setDisplayFeaturesOverride setDocumentCookieDisabled \
         setEmitTouchEventsForMouse setEmulatedOSTextScale setEmulatedVisionDeficiency \
         setHardwareConcurrencyOverride setIdleOverride setNavigatorOverrides setPageScaleFactor \
         setPressureDataOverride setPressureSourceOverrideEnabled setPressureStateOverride \
         setSafeAreaInsetsOverride setScrollbarsHidden setSensorOverrideEnabled \
         setSensorOverrideReadings setSmallViewportHeightDifferenceOverride",
    ),
    (
        "Emulation",
        IDLE_EXECUTOR,
        "clearGeolocationOverride setDeviceMetricsOverride setEmulatedMedia \
         setFocusEmulationEnabled setGeolocationOverride setLocaleOverride \
         setScriptExecutionDisabled setTimezoneOverride setTouchEmulationEnabled \
         setUserAgentOverride",
    ),
    (
        "EventBreakpoints",
        SCRIPT,
        "disable removeInstrumentationBreakpoint setInstrumentationBreakpoint",
    ),
    (
        "Extensions",
        CLIENT,
        "clearStorageItems getExtensions getStorageItems loadUnpacked removeStorageItems \
         setStorageItems triggerAction uninstall",
    ),
    (
        "FedCm",
        SCRIPT,
        "clickDialogButton disable dismissDialog enable openUrl resetCooldown selectAccount",
    ),
    (
        "Fetch",
        IDLE_EXECUTOR,
        "continueRequest continueResponse continueWithAuth disable enable failRequest \
         fulfillRequest getResponseBody takeResponseBodyAsStream",
    ),
    ("FileSystem", CLIENT, "getDirectory"),
    ("FindInPage", CLIENT, "findFirst findNext findPrev stop"),
    ("HeadlessExperimental", CLIENT, "beginFrame disable enable"),
    (
        "HeapProfiler",
        SCRIPT,
        "addInspectedHeapObject collectGarbage disable enable getHeapObjectId \
         getObjectByHeapObjectId getSamplingProfile startSampling startTrackingHeapObjects \
         stopSampling stopTrackingHeapObjects takeHeapSnapshot",
    ),
    ("IO", SCRIPT, "resolveBlob"),
    ("IO", IDLE_EXECUTOR, "close read"),
    (
        "IndexedDB",
        SCRIPT,
        "clearObjectStore deleteDatabase deleteObjectStoreEntries disable enable getMetadata \
         requestData requestDatabase requestDatabaseNames",
    ),
    (
        "Input",
        SCRIPT,
        "cancelDragging dispatchDragEvent dispatchKeyEvent dispatchMouseEvent dispatchTouchEvent \
         emulateTouchFromMouseEvent imeSetComposition insertText setIgnoreInputEvents \
         setInterceptDrags synthesizePinchGesture synthesizeScrollGesture synthesizeTapGesture",
    ),
    ("Inspector", VIEWER, "disable"),
    ("Inspector", ALL, "enable"),
    ("LayerTree", CLIENT, "loadSnapshot"),
    (
        "LayerTree",
        SCRIPT,
        "compositingReasons disable enable makeSnapshot profileSnapshot releaseSnapshot \
         replaySnapshot snapshotCommandLog",
    ),
    (
        "Log",
        SCRIPT,
        "clear disable startViolationsReport stopViolationsReport",
    ),
    ("Log", IDLE_EXECUTOR, "enable"),
    ("Media", SCRIPT, "disable enable"),
    (
        "Memory",
        CLIENT,
        "getAllTimeSamplingProfile getBrowserSamplingProfile setPressureNotificationsSuppressed \
         simulatePressureNotification",
    ),
    (
        "Memory",
        SCRIPT,
        "forciblyPurgeJavaScriptMemory getDOMCountersForLeakDetection getSamplingProfile \
         prepareForLeakDetection startSampling stopSampling",
    ),
    ("Memory", VIEWER, "getDOMCounters"),
    (
        "Network",
        CLIENT,
        "deleteDeviceBoundSession enableDeviceBoundSessions setCookieControls",
    ),
    (
        "Network",
        SCRIPT,
        "canClearBrowserCache canClearBrowserCookies canEmulateNetworkConditions \
         clearAcceptedEncodingsOverride clearBrowserCache clearBrowserCookies \
         configureDurableMessages continueInterceptedRequest deleteCookies disable \
         emulateNetworkConditionsByRule enableReportingApi fetchSchemefulSite getAllCookies \
         getCertificate getCookies getRequestPostData getResponseBody \
         getResponseBodyForInterception getSecurityIsolationStatus loadNetworkResource \
         overrideNetworkState replayXHR searchInResponseBody setAcceptedEncodings \
         setAttachDebugStack setBlockedURLs setCookie setCookies setRequestInterception \
         setUserAgentOverride streamResourceContent takeResponseBodyForInterceptionAsStream",
    ),
    (
        "Network",
        IDLE_EXECUTOR,
        "emulateNetworkConditions enable setBypassServiceWorker setCacheDisabled \
         setExtraHTTPHeaders",
    ),
    ("Overlay", CLIENT, "setShowDisplayCutout"),
    (
        "Overlay",
        SCRIPT,
        "disable enable getGridHighlightObjectsForTest getHighlightObjectForTest \
         getSourceOrderHighlightObjectForTest hideHighlight highlightFrame highlightNode \
         highlightQuad highlightRect highlightSourceOrder setInspectMode \
         setPausedInDebuggerMessage setShowAdHighlights setShowContainerQueryOverlays \
         setShowDebugBorders setShowFPSCounter setShowFlexOverlays setShowGridOverlays \
         setShowHinge setShowHitTestBorders setShowInspectedElementAnchor setShowIsolatedElements \
         setShowLayoutShiftRegions setShowPaintRects setShowScrollBottleneckRects \
         setShowScrollSnapOverlays setShowViewportSizeOnResize setShowWebVitals \
         setShowWindowControlsOverlay",
    ),
    (
        "PWA",
        CLIENT,
        "changeAppUserSettings getOsAppState install launch launchFilesInApp openCurrentPageInApp \
         uninstall",
    ),
    (
        "Page",
        CLIENT,
        "addCompilationCache clearCompilationCache crash generateTestReport \
         getAnnotatedPageContent getSiblingSubApps getSubApps produceCompilationCache \
         setAdBlockingEnabled setFontSizes setPrerenderingAllowed setRPHRegistrationMode \
         setSPCTransactionMode setWebLifecycleState startScreenRecording stopScreenRecording \
         waitForDebugger",
    ),
    (
        "Page",
        SCRIPT,
        "addScriptToEvaluateOnLoad addScriptToEvaluateOnNewDocument bringToFront \
         captureScreenshot captureSnapshot clearDeviceMetricsOverride \
         clearDeviceOrientationOverride clearGeolocationOverride close deleteCookie disable \
         getAdScriptAncestry getAppId getAppManifest getInstallabilityErrors getManifestIcons \
         getNavigationHistory getOriginTrials getPermissionsPolicyState getResourceContent \
         getResourceTree navigate navigateToHistoryEntry printToPDF reload \
         removeScriptToEvaluateOnLoad removeScriptToEvaluateOnNewDocument resetNavigationHistory \
         searchInResource setDeviceMetricsOverride setDeviceOrientationOverride \
         setDocumentContent setDownloadBehavior setGeolocationOverride setTouchEmulationEnabled \
         startScreencast stopLoading stopScreencast",
    ),
    (
        "Page",
        IDLE_EXECUTOR,
        "createIsolatedWorld enable getFrameTree handleJavaScriptDialog screencastFrameAck \
         setBypassCSP setFontFamilies setInterceptFileChooserDialog setLifecycleEventsEnabled",
    ),
    ("Page", VIEWER, "getLayoutMetrics"),
    ("Performance", SCRIPT, "setTimeDomain"),
    ("Performance", VIEWER, "disable enable getMetrics"),
    ("PerformanceTimeline", SCRIPT, "enable"),
    ("Preload", SCRIPT, "disable enable"),
    (
        "Profiler",
        SCRIPT,
        "disable enable getBestEffortCoverage setSamplingInterval start startPreciseCoverage stop \
         stopPreciseCoverage takePreciseCoverage",
    ),
    (
        "Runtime",
        SCRIPT,
        "awaitPromise callFunctionOn compileScript disable discardConsoleEntries evaluate \
         getExceptionDetails getHeapUsage getIsolateId getProperties globalLexicalScopeNames \
         queryObjects removeBinding runScript setAsyncCallStackDepth \
         setCustomObjectFormatterEnabled setMaxCallStackSizeToCapture terminateExecution",
    ),
    (
        "Runtime",
        IDLE_EXECUTOR,
        "addBinding enable releaseObject releaseObjectGroup runIfWaitingForDebugger",
    ),
    ("Schema", VIEWER, "getDomains"),
    (
        "Security",
        SCRIPT,
        "disable enable handleCertificateError setOverrideCertificateErrors",
    ),
    ("Security", IDLE_EXECUTOR, "setIgnoreCertificateErrors"),
    (
        "ServiceWorker",
        SCRIPT,
        "deliverPushMessage disable dispatchPeriodicSyncEvent dispatchSyncEvent enable \
         setForceUpdateOnPageLoad skipWaiting startWorker stopAllWorkers stopWorker unregister \
         updateRegistration",
    ),
    (
        "SmartCardEmulation",
        CLIENT,
        "disable enable reportBeginTransactionResult reportConnectResult reportDataResult \
         reportError reportEstablishContextResult reportGetStatusChangeResult \
         reportListReadersResult reportPlainResult reportReleaseContextResult reportStatusResult",
    ),
    (
        "Storage",
        CLIENT,
        "clearPrivateVerificationTokens clearSharedStorageEntries clearTrustTokens \
         deletePrivateVerificationToken deleteSharedStorageEntry \
         getAffectedUrlsForThirdPartyCookieMetadata getInterestGroupDetails \
         getPrivateVerificationTokens getPrivateVerificationTokensIssuerConfigs \
         getRelatedWebsiteSets getSharedStorageEntries getSharedStorageMetadata getTrustTokens \
         resetSharedStorageBudget runBounceTrackingMitigations sendPendingAttributionReports \
         setAttributionReportingLocalTestingMode setAttributionReportingTracking \
         setInterestGroupAuctionTracking setInterestGroupTracking \
         setPrivateVerificationTokensTracking setProtectedAudienceKAnonymity \
         setSharedStorageEntry setSharedStorageTracking",
    ),
    (
        "Storage",
        SCRIPT,
        "clearCookies clearDataForOrigin clearDataForStorageKey deleteStorageBucket getCookies \
         getStorageKey getStorageKeyForFrame getUsageAndQuota overrideQuotaForOrigin setCookies \
         setStorageBucketTracking trackCacheStorageForOrigin trackCacheStorageForStorageKey \
         trackIndexedDBForOrigin trackIndexedDBForStorageKey untrackCacheStorageForOrigin \
         untrackCacheStorageForStorageKey untrackIndexedDBForOrigin untrackIndexedDBForStorageKey",
    ),
    (
        "SystemInfo",
        CLIENT,
        "getFeatureState getInfo getProcessInfo",
    ),
    (
        "Target",
        REFUSED,
        "exposeDevToolsProtocol openDevTools setRemoteLocations",
    ),
    ("Target", CLIENT, "getDevToolsTarget sendMessageToTarget"),
    (
        "Target",
        SCRIPT,
        "activateTarget attachToBrowserTarget attachToTarget autoAttachRelated closeTarget \
         createBrowserContext createTarget disposeBrowserContext",
    ),
    ("Target", IDLE_EXECUTOR, "detachFromTarget setAutoAttach"),
    (
        "Target",
        VIEWER,
        "getBrowserContexts getTargets setDiscoverTargets",
    ),
    ("Target", ALL, "getTargetInfo"),
    ("Tethering", REFUSED, "bind unbind"),
    (
        "Tracing",
        SCRIPT,
        "end getCategories getTrackEventDescriptor recordClockSyncMarker requestMemoryDump start",
    ),
    ("WebAudio", SCRIPT, "disable enable getRealtimeData"),
    (
        "WebAuthn",
        SCRIPT,
        "addCredential addVirtualAuthenticator clearCredentials disable enable getCredential \
         getCredentials removeCredential removeVirtualAuthenticator \
         setAutomaticPresenceSimulation setCredentialProperties setResponseOverrideBits \
         setUserVerified",
    ),
    (
        "WebMCP",
        CLIENT,
        "cancelInvocation disable enable invokeTool",
    ),
];
