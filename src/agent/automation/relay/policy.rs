//! The DevTools methods that a script may call: an allow-list.
//!
//! The list contains what Playwright sends and what scripts call through `newCDPSession`:
//! inspecting and changing pages, their traffic, storage and emulation, and tabs. It applies to
//! every session, whatever that is attached to. Some of the methods are checked further, see
//! [`restrictions`](super::restrictions). Not in the list, among others:
//!
//! - `Target.exposeDevToolsProtocol`, `setRemoteLocations`, `openDevTools`: a page would get the
//!   protocol, also after the script.
//! - `Target.sendMessageToTarget`: carries commands past this list.
//! - `Browser.close`, `crash`, `executeBrowserCommand`, `Page.crash`: end what clients share.
//! - `Browser.getBrowserCommandLine`, `SystemInfo.*`, `DOM.getFileInfo`: describe the machine.
//! - `Tethering.*`, `Cast.*`, `DeviceAccess.*`: use its ports and devices.
//! - `Extensions.*`, `PWA.*`: load and open files by path.
//! - Screens (`Emulation.addScreen`), settings of the whole browser (`Network.setCookieControls`),
//!   and what Chromium does not undo when the script's connection closes
//!   (`Emulation.setVirtualTimePolicy`, `Page.setFontSizes`, `Page.setWebLifecycleState`): outlive
//!   the script or affect other tabs.
//!
//! A method of a later Chromium is refused until it is added here.

use std::{collections::HashSet, sync::LazyLock};

/// The permitted methods of each domain.
pub(super) const ALLOWED: &[(&str, &str)] = &[
    (
        "Accessibility",
        "disable enable getAXNodeAndAncestors getChildAXNodes getFullAXTree getPartialAXTree \
         getRootAXNode queryAXTree",
    ),
    (
        "Animation",
        "disable enable getCurrentTime getPlaybackRate releaseAnimations resolveAnimation \
         seekAnimations setPaused setPlaybackRate setTiming",
    ),
    (
        "Audits",
        "checkFormsIssues disable enable getEncodedResponse",
    ),
    (
        "BackgroundService",
        "clearEvents setRecording startObserving stopObserving",
    ),
    (
        "Browser",
        "cancelDownload getVersion getWindowBounds getWindowForTarget grantPermissions \
         resetPermissions setContentsSize setDockTile setDownloadBehavior setPermission \
         setWindowBounds",
    ),
    (
        "CSS",
        "addRule collectClassNames createStyleSheet disable enable forcePseudoState \
         forceStartingStyle getAnimatedStylesForNode getBackgroundColors \
         getComputedStyleForNode getEnvironmentVariables getInlineStylesForNode \
         getLayersForNode getLocationForSelector getLonghandProperties \
         getMatchedStylesForNode getMediaQueries getPlatformFontsForNode getStyleSheetText \
         resolveValues setContainerQueryText setEffectivePropertyValueForNode setKeyframeKey \
         setLocalFontsEnabled setMediaText setNavigationText setPropertyRulePropertyName \
         setRuleSelector setScopeText setStyleSheetText setStyleTexts setSupportsText \
         startRuleUsageTracking stopRuleUsageTracking takeComputedStyleUpdates \
         takeCoverageDelta trackComputedStyleUpdates trackComputedStyleUpdatesForNode",
    ),
    (
        "CacheStorage",
        "deleteCache deleteEntry requestCacheNames requestCachedResponse requestEntries",
    ),
    ("Console", "clearMessages disable enable"),
    (
        "DOM",
        "collectClassNamesFromSubtree copyTo describeNode disable discardSearchResults enable \
         focus forceShowPopover getAnchorElement getAttributes getBoxModel \
         getContainerForNode getContentQuads getDetachedDomNodes getDocument \
         getElementByRelation getFlattenedDocument getFrameOwner getNodeForLocation \
         getNodeStackTraces getNodesForSubtreeByStyle getOuterHTML \
         getQueryingDescendantsForContainer getRelayoutBoundary getSearchResults \
         getTopLayerElements hideHighlight highlightNode highlightRect markUndoableState \
         moveTo performSearch pushNodeByPathToFrontend pushNodesByBackendIdsToFrontend \
         querySelector querySelectorAll redo removeAttribute removeNode requestChildNodes \
         requestNode resolveNode scrollIntoViewIfNeeded setAttributeValue setAttributesAsText \
         setFileInputFiles setInspectedNode setNodeName setNodeStackTracesEnabled \
         setNodeValue setOuterHTML undo",
    ),
    (
        "DOMDebugger",
        "getEventListeners removeDOMBreakpoint removeEventListenerBreakpoint \
         removeInstrumentationBreakpoint removeXHRBreakpoint setBreakOnCSPViolation \
         setDOMBreakpoint setEventListenerBreakpoint setInstrumentationBreakpoint \
         setXHRBreakpoint",
    ),
    ("DOMSnapshot", "captureSnapshot disable enable getSnapshot"),
    (
        "DOMStorage",
        "clear disable enable getDOMStorageItems removeDOMStorageItem setDOMStorageItem",
    ),
    (
        "Debugger",
        "continueToLocation disable disassembleWasmModule enable evaluateOnCallFrame \
         getPossibleBreakpoints getScriptSource getStackTrace getWasmBytecode \
         nextWasmDisassemblyChunk pause pauseOnAsyncCall removeBreakpoint restartFrame resume \
         searchInContent setAsyncCallStackDepth setBlackboxExecutionContexts \
         setBlackboxPatterns setBlackboxedRanges setBreakpoint setBreakpointByUrl \
         setBreakpointOnFunctionCall setBreakpointsActive setInstrumentationBreakpoint \
         setPauseOnExceptions setReturnValue setScriptSource setSkipAllPauses \
         setVariableValue stepInto stepOut stepOver",
    ),
    (
        "DeviceOrientation",
        "clearDeviceOrientationOverride setDeviceOrientationOverride",
    ),
    (
        "Emulation",
        "canEmulate clearDeviceMetricsOverride clearDevicePostureOverride \
         clearDisplayFeaturesOverride clearGeolocationOverride clearIdleOverride \
         getOverriddenSensorInformation resetPageScaleFactor setAutoDarkModeOverride \
         setAutomationOverride setCPUThrottlingRate setDataSaverOverride \
         setDefaultBackgroundColorOverride setDeviceMetricsOverride setDevicePostureOverride \
         setDisabledImageTypes setDisplayFeaturesOverride setDocumentCookieDisabled \
         setEmitTouchEventsForMouse setEmulatedMedia setEmulatedOSTextScale \
         setEmulatedVisionDeficiency setFocusEmulationEnabled setGeolocationOverride \
         setHardwareConcurrencyOverride setIdleOverride setLocaleOverride \
         setNavigatorOverrides setPageScaleFactor setPressureDataOverride \
         setPressureSourceOverrideEnabled setPressureStateOverride setSafeAreaInsetsOverride \
         setScriptExecutionDisabled setScrollbarsHidden setSensorOverrideEnabled \
         setSensorOverrideReadings setSmallViewportHeightDifferenceOverride \
         setTimezoneOverride setTouchEmulationEnabled setUserAgentOverride",
    ),
    (
        "EventBreakpoints",
        "disable removeInstrumentationBreakpoint setInstrumentationBreakpoint",
    ),
    (
        "FedCm",
        "clickDialogButton disable dismissDialog enable openUrl resetCooldown selectAccount",
    ),
    (
        "Fetch",
        "continueRequest continueResponse continueWithAuth disable enable failRequest \
         fulfillRequest getResponseBody takeResponseBodyAsStream",
    ),
    (
        "HeapProfiler",
        "addInspectedHeapObject collectGarbage disable enable getHeapObjectId \
         getObjectByHeapObjectId getSamplingProfile startSampling startTrackingHeapObjects \
         stopSampling stopTrackingHeapObjects takeHeapSnapshot",
    ),
    ("IO", "close read resolveBlob"),
    (
        "IndexedDB",
        "clearObjectStore deleteDatabase deleteObjectStoreEntries disable enable getMetadata \
         requestData requestDatabase requestDatabaseNames",
    ),
    (
        "Input",
        "cancelDragging dispatchDragEvent dispatchKeyEvent dispatchMouseEvent \
         dispatchTouchEvent emulateTouchFromMouseEvent imeSetComposition insertText \
         setIgnoreInputEvents setInterceptDrags synthesizePinchGesture \
         synthesizeScrollGesture synthesizeTapGesture",
    ),
    ("Inspector", "disable enable"),
    (
        "LayerTree",
        "compositingReasons disable enable makeSnapshot profileSnapshot releaseSnapshot \
         replaySnapshot snapshotCommandLog",
    ),
    (
        "Log",
        "clear disable enable startViolationsReport stopViolationsReport",
    ),
    ("Media", "disable enable"),
    (
        "Memory",
        "forciblyPurgeJavaScriptMemory getDOMCounters getDOMCountersForLeakDetection \
         getSamplingProfile prepareForLeakDetection startSampling stopSampling",
    ),
    (
        "Network",
        "canClearBrowserCache canClearBrowserCookies canEmulateNetworkConditions \
         clearAcceptedEncodingsOverride clearBrowserCache clearBrowserCookies \
         configureDurableMessages continueInterceptedRequest deleteCookies disable \
         emulateNetworkConditions emulateNetworkConditionsByRule enable enableReportingApi \
         fetchSchemefulSite getAllCookies getCertificate getCookies getRequestPostData \
         getResponseBody getResponseBodyForInterception getSecurityIsolationStatus \
         loadNetworkResource overrideNetworkState replayXHR searchInResponseBody \
         setAcceptedEncodings setAttachDebugStack setBlockedURLs setBypassServiceWorker \
         setCacheDisabled setCookie setCookies setExtraHTTPHeaders setRequestInterception \
         setUserAgentOverride streamResourceContent takeResponseBodyForInterceptionAsStream",
    ),
    (
        "Overlay",
        "disable enable getGridHighlightObjectsForTest getHighlightObjectForTest \
         getSourceOrderHighlightObjectForTest hideHighlight highlightFrame highlightNode \
         highlightQuad highlightRect highlightSourceOrder setInspectMode \
         setPausedInDebuggerMessage setShowAdHighlights setShowContainerQueryOverlays \
         setShowDebugBorders setShowFPSCounter setShowFlexOverlays setShowGridOverlays \
         setShowHinge setShowHitTestBorders setShowInspectedElementAnchor \
         setShowIsolatedElements setShowLayoutShiftRegions setShowPaintRects \
         setShowScrollBottleneckRects setShowScrollSnapOverlays setShowViewportSizeOnResize \
         setShowWebVitals setShowWindowControlsOverlay",
    ),
    (
        "Page",
        "addScriptToEvaluateOnLoad addScriptToEvaluateOnNewDocument bringToFront \
         captureScreenshot captureSnapshot clearDeviceMetricsOverride \
         clearDeviceOrientationOverride clearGeolocationOverride close createIsolatedWorld \
         deleteCookie disable enable getAdScriptAncestry getAppId getAppManifest getFrameTree \
         getInstallabilityErrors getLayoutMetrics getManifestIcons getNavigationHistory \
         getOriginTrials getPermissionsPolicyState getResourceContent getResourceTree \
         handleJavaScriptDialog navigate navigateToHistoryEntry printToPDF reload \
         removeScriptToEvaluateOnLoad removeScriptToEvaluateOnNewDocument \
         resetNavigationHistory screencastFrameAck searchInResource setBypassCSP \
         setDeviceMetricsOverride setDeviceOrientationOverride setDocumentContent \
         setDownloadBehavior setFontFamilies setGeolocationOverride \
         setInterceptFileChooserDialog setLifecycleEventsEnabled setTouchEmulationEnabled \
         startScreencast stopLoading stopScreencast",
    ),
    ("Performance", "disable enable getMetrics setTimeDomain"),
    ("PerformanceTimeline", "enable"),
    ("Preload", "disable enable"),
    (
        "Profiler",
        "disable enable getBestEffortCoverage setSamplingInterval start startPreciseCoverage \
         stop stopPreciseCoverage takePreciseCoverage",
    ),
    (
        "Runtime",
        "addBinding awaitPromise callFunctionOn compileScript disable discardConsoleEntries \
         enable evaluate getExceptionDetails getHeapUsage getIsolateId getProperties \
         globalLexicalScopeNames queryObjects releaseObject releaseObjectGroup removeBinding \
         runIfWaitingForDebugger runScript setAsyncCallStackDepth \
         setCustomObjectFormatterEnabled setMaxCallStackSizeToCapture terminateExecution",
    ),
    ("Schema", "getDomains"),
    (
        "Security",
        "disable enable handleCertificateError setIgnoreCertificateErrors \
         setOverrideCertificateErrors",
    ),
    (
        "ServiceWorker",
        "deliverPushMessage disable dispatchPeriodicSyncEvent dispatchSyncEvent enable \
         setForceUpdateOnPageLoad skipWaiting startWorker stopAllWorkers stopWorker \
         unregister updateRegistration",
    ),
    (
        "Storage",
        "clearCookies clearDataForOrigin clearDataForStorageKey deleteStorageBucket \
         getCookies getStorageKey getStorageKeyForFrame getUsageAndQuota \
         overrideQuotaForOrigin setCookies setStorageBucketTracking \
         trackCacheStorageForOrigin trackCacheStorageForStorageKey trackIndexedDBForOrigin \
         trackIndexedDBForStorageKey untrackCacheStorageForOrigin \
         untrackCacheStorageForStorageKey untrackIndexedDBForOrigin \
         untrackIndexedDBForStorageKey",
    ),
    (
        "Target",
        "activateTarget attachToBrowserTarget attachToTarget autoAttachRelated closeTarget \
         createBrowserContext createTarget detachFromTarget disposeBrowserContext \
         getBrowserContexts getTargetInfo getTargets setAutoAttach setDiscoverTargets",
    ),
    (
        "Tracing",
        "end getCategories getTrackEventDescriptor recordClockSyncMarker requestMemoryDump \
         start",
    ),
    ("WebAudio", "disable enable getRealtimeData"),
    (
        "WebAuthn",
        "addCredential addVirtualAuthenticator clearCredentials disable enable getCredential \
         getCredentials removeCredential removeVirtualAuthenticator \
         setAutomaticPresenceSimulation setCredentialProperties setResponseOverrideBits \
         setUserVerified",
    ),
];

static METHODS: LazyLock<HashSet<(&str, &str)>> = LazyLock::new(|| methods(ALLOWED).collect());

/// Whether a script may call the method.
pub(super) fn is_allowed(method: &str) -> bool {
    contains(&METHODS, method)
}

/// Whether a set of domains and names contains the method.
pub(super) fn contains(set: &HashSet<(&str, &str)>, method: &str) -> bool {
    method
        .split_once('.')
        .is_some_and(|method| set.contains(&method))
}

/// Returns the domain and the name of each method in a table.
pub(super) fn methods(
    table: &'static [(&str, &str)],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = |&(domain, names): &'static (&str, &str)| {
        names
            .split_ascii_whitespace()
            .map(move |name| (domain, name))
    };
    table.iter().flat_map(names)
}
