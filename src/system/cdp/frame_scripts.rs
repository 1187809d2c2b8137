//! Scripts in isolated worlds of a tab's frames.
//!
//! A frame with a process of its own is a target of its own, and has a session of its own here. The
//! scripts and sessions end with the connection of the tab's session.
//!
//! A script is addressed by its object, whose id names the context and the process that it is in. A
//! frame that has navigated has no such object, so a call never runs in another document.

use std::time::Duration;

use chromiumoxide::cdp::{
    browser_protocol::{
        dom::{
            BackendNodeId, EnableParams, GetDocumentParams, GetFrameOwnerParams,
            GetSearchResultsParams, NodeId, PerformSearchParams, ResolveNodeParams,
        },
        network::LoaderId,
        page::{CreateIsolatedWorldParams, FrameId},
        target::SessionId,
    },
    js_protocol::runtime::{
        CallFunctionOnParams, EvaluateParams, ExecutionContextId, ReleaseObjectGroupParams,
        RemoteObjectId,
    },
};
use futures::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time;

use super::{
    connection::{Cdp, CdpError},
    frame_documents::{Document, add_documents, frame_tree},
    tab::TabSession,
};

/// The time in which a frame other than the tab's own has to respond. One that hangs is left out.
pub(super) const FRAME_TIMEOUT: Duration = Duration::from_secs(2);
/// The group of the objects of scripts: those that their calls refer to.
const OBJECT_GROUP: &str = "berth-frame-scripts";
/// The most fields that are looked for in closed shadow trees.
const MAX_SEARCH_RESULTS: i64 = 256;
/// The errors of Chromium for a call whose object or session is gone, which did not run.
const NOT_RUN: [&str; 3] = [
    "Could not find object",
    "Invalid remote object id",
    "Session with given id not found",
];
/// The error for a call whose context is gone. A script that removes its frame ends the context
/// during the call; that of a tab's own frame ends between calls only.
const NO_CONTEXT: &str = "Cannot find context";

/// The source of scripts in frames. Its value is an object.
#[derive(Debug, Clone, Copy)]
pub struct ScriptSource<'a> {
    pub text: &'a str,
    /// An expression for the object that an evaluation has left in the world, if it leaves one. A
    /// long text is not sent again then.
    pub earlier: Option<&'a str>,
}

/// A script in a frame.
#[derive(Debug)]
pub struct FrameScript {
    /// The address of the frame's document.
    pub url: String,
    frame: FrameId,
    parent: Option<FrameId>,
    loader: LoaderId,
    session: SessionId,
    context: ExecutionContextId,
    object: RemoteObjectId,
}

impl FrameScript {
    /// Waits for the result of a call. A frame other than the tab's own has to respond in time.
    pub async fn in_time<T, E: From<CdpError>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if self.parent.is_none() {
            return call.await;
        }
        let timed_out = |_| CdpError::Timeout {
            method: CallFunctionOnParams::IDENTIFIER.to_owned(),
            after: FRAME_TIMEOUT,
        };
        let result = time::timeout(FRAME_TIMEOUT, call).await;
        result.map_err(timed_out)?
    }

    /// Whether a call that failed with this message did not run.
    fn has_not_run(&self, message: &str) -> bool {
        let is_own = self.parent.is_none();
        NOT_RUN.iter().any(|start| message.starts_with(start))
            || is_own && message.starts_with(NO_CONTEXT)
    }
}

/// An element in a frame, for the script in that frame.
#[derive(Debug, Clone)]
pub struct FrameElement(RemoteObjectId);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ScriptCallError {
    /// The document of the script is gone. The call did not run.
    #[error("the frame has navigated")]
    Gone,
    /// The call may have run.
    #[error(transparent)]
    Unknown(#[from] CdpError),
}

/// The parameters of the command that calls a method. Not chromiumoxide's, which own their texts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallOfMethod<'a, A> {
    function_declaration: String,
    object_id: &'a RemoteObjectId,
    arguments: A,
    return_by_value: bool,
    await_promise: bool,
    user_gesture: bool,
    silent: bool,
}

/// An argument of such a call that is given by its value.
#[derive(Serialize)]
struct Argument<V> {
    value: V,
}

/// The circumstances of a call.
#[derive(Debug, Clone, Copy, Default)]
struct CallOptions {
    /// Wait for the promise that the method returns.
    awaits: bool,
    /// Run the method as if the user had clicked: the page may open a window.
    as_user: bool,
}

impl TabSession {
    /// Evaluates `source` in an isolated world of each frame, up to `max` frames. Its value is the
    /// object whose methods [`Self::call_script`] calls. The script of the tab's own frame comes
    /// first. Other frames are left out if `permits` is false for their address, with all frames in
    /// them that have a process of their own, and if they do not respond in time. Scripts of an
    /// earlier call in the same document share their world, and cannot be called any more.
    pub async fn frame_scripts(
        &self,
        world: &str,
        source: ScriptSource<'_>,
        max: usize,
        permits: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<FrameScript>, ScriptCallError> {
        let mut documents = self.documents(max, permits).await?;
        documents.truncate(max);
        self.release_objects(&documents).await?;
        let mut documents = documents.into_iter();
        let Some(own) = documents.next() else {
            return Ok(Vec::new());
        };
        let own = start_script(&self.cdp, own, world, source).await;
        let mut scripts = vec![own.map_err(|error| match error {
            CdpError::Failed { message, .. } if message.starts_with(NO_CONTEXT) => {
                ScriptCallError::Gone
            }
            error => error.into(),
        })?];
        let others = documents.map(|document| async {
            let started = start_script(&self.cdp, document, world, source);
            time::timeout(FRAME_TIMEOUT, started).await.ok()?.ok()
        });
        scripts.extend(join_all(others).await.into_iter().flatten());
        Ok(scripts)
    }

    /// Calls a method of a script with a list of arguments, and returns its result by value. The
    /// arguments may be secret: no copy of them is left in memory but in the buffers of the pipe.
    pub async fn call_script(
        &self,
        script: &FrameScript,
        method: &str,
        arguments: impl Serialize,
    ) -> Result<Value, ScriptCallError> {
        let options = CallOptions::default();
        self.call_by_value(script, method, arguments, options).await
    }

    /// Calls a method that returns a promise, like [`Self::call_script`], and returns its value.
    pub async fn await_script(
        &self,
        script: &FrameScript,
        method: &str,
        arguments: impl Serialize,
    ) -> Result<Value, ScriptCallError> {
        let options = CallOptions {
            awaits: true,
            ..CallOptions::default()
        };
        self.call_by_value(script, method, arguments, options).await
    }

    /// Calls a method like [`Self::call_script`], as if the user had clicked.
    pub async fn call_script_as_user(
        &self,
        script: &FrameScript,
        method: &str,
        arguments: impl Serialize,
    ) -> Result<Value, ScriptCallError> {
        let options = CallOptions {
            as_user: true,
            ..CallOptions::default()
        };
        self.call_by_value(script, method, arguments, options).await
    }

    async fn call_by_value(
        &self,
        script: &FrameScript,
        method: &str,
        arguments: impl Serialize,
        options: CallOptions,
    ) -> Result<Value, ScriptCallError> {
        let list = [Argument { value: arguments }];
        self.call_with(script, method, "list", list, options).await
    }

    /// Calls a method of a script with elements of its frame as arguments.
    pub async fn call_script_with_elements(
        &self,
        script: &FrameScript,
        method: &str,
        elements: &[FrameElement],
    ) -> Result<Value, ScriptCallError> {
        let elements: Vec<_> = elements
            .iter()
            .map(|FrameElement(id)| json!({ "objectId": id }))
            .collect();
        let options = CallOptions::default();
        self.call_with(script, method, "...list", elements, options)
            .await
    }

    async fn call_with(
        &self,
        script: &FrameScript,
        method: &str,
        parameters: &str,
        arguments: impl Serialize,
        options: CallOptions,
    ) -> Result<Value, ScriptCallError> {
        let call = CallOfMethod {
            function_declaration: format!(
                "function({parameters}) {{ return this.{method}(...list) }}"
            ),
            object_id: &script.object,
            arguments,
            return_by_value: true,
            await_promise: options.awaits,
            user_gesture: options.as_user,
            silent: true,
        };
        let identifier = CallFunctionOnParams::IDENTIFIER;
        let session = Some(script.session.clone());
        let sent = self.cdp.send_params(identifier, &call, session).await;
        let reply = sent.map_err(|_| ScriptCallError::Gone)?.reply().await;
        let mut reply = reply.map_err(|error| match error {
            CdpError::Failed { message, .. } if script.has_not_run(&message) => {
                ScriptCallError::Gone
            }
            error => ScriptCallError::Unknown(error),
        })?;
        if let Some(exception) = reply.get("exceptionDetails") {
            // Its text may be of the page.
            return Err(ScriptCallError::Unknown(CdpError::Failed {
                method: method.to_owned(),
                message: format!(
                    "an exception at {}:{}",
                    exception["lineNumber"], exception["columnNumber"]
                ),
            }));
        }
        Ok(reply["result"]["value"].take())
    }

    /// Whether the frame still has the document that the script was started in.
    pub async fn is_current(&self, script: &FrameScript) -> Result<bool, CdpError> {
        let tree = frame_tree(&self.cdp, &script.session).await?;
        let mut documents = Vec::new();
        add_documents(&tree, &script.session, None, &|_| true, &mut documents);
        Ok(documents.iter().any(|document| {
            document.frame.id == script.frame && document.frame.loader_id == script.loader
        }))
    }

    /// Returns the element that contains a frame, with the index of the script of the frame that it
    /// is in, which has to respond in time. `None` for the tab's own frame, and if there is no such
    /// script.
    pub async fn frame_owner(
        &self,
        scripts: &[FrameScript],
        script: &FrameScript,
    ) -> Result<Option<(usize, FrameElement)>, CdpError> {
        let is_parent = |other: &FrameScript| Some(&other.frame) == script.parent.as_ref();
        let Some(index) = scripts.iter().position(is_parent) else {
            return Ok(None);
        };
        let parent = &scripts[index];
        let element = parent.in_time(async {
            let session = Some(parent.session.clone());
            let owner = GetFrameOwnerParams::new(script.frame.clone());
            let owner = self.cdp.call(owner, session).await?.backend_node_id;
            self.resolve(parent, Node::Backend(owner)).await
        });
        Ok(Some((index, element.await?)))
    }

    /// Returns the `input` elements in a script's frame, closed shadow trees included.
    pub async fn all_inputs(&self, script: &FrameScript) -> Result<Vec<FrameElement>, CdpError> {
        let session = Some(script.session.clone());
        self.cdp
            .call(EnableParams::default(), session.clone())
            .await?;
        // Its reply is not read: it describes nodes, of kinds that newer versions may add to.
        let document = GetDocumentParams::builder().depth(0).build();
        let mut document = self.cdp.send(document, session.clone()).await?;
        document.reply().await?;
        let search = PerformSearchParams::new("<input>");
        let found = self.cdp.call(search, session.clone()).await?;
        let count = found.result_count.min(MAX_SEARCH_RESULTS);
        if count == 0 {
            return Ok(Vec::new());
        }
        let results = GetSearchResultsParams::new(found.search_id.clone(), 0, count);
        let results = self.cdp.call(results, session).await?;
        let nodes = results.node_ids.iter();
        let elements = join_all(nodes.map(|node| self.resolve(script, Node::Front(*node)))).await;
        // The results are of all frames of the session: those of others cannot be resolved.
        Ok(elements.into_iter().flatten().collect())
    }

    async fn resolve(&self, script: &FrameScript, node: Node) -> Result<FrameElement, CdpError> {
        let mut params = ResolveNodeParams::builder()
            .execution_context_id(script.context)
            .object_group(OBJECT_GROUP);
        params = match node {
            Node::Backend(id) => params.backend_node_id(id),
            Node::Front(id) => params.node_id(id),
        };
        let resolved = self.cdp.call(params.build(), Some(script.session.clone()));
        let id = resolved.await?.object.object_id.clone();
        id.map(FrameElement).ok_or_else(|| CdpError::InvalidReply {
            method: ResolveNodeParams::IDENTIFIER.to_owned(),
            message: "no object".to_owned(),
        })
    }

    /// Releases the objects of the scripts that were started before.
    async fn release_objects(&self, documents: &[Document]) -> Result<(), CdpError> {
        let mut sessions: Vec<&SessionId> = Vec::new();
        for document in documents {
            if !sessions.contains(&&document.session) {
                sessions.push(&document.session);
            }
        }
        for session in sessions {
            // Its reply is not awaited. Chromium runs the commands of a session in their order.
            let release = ReleaseObjectGroupParams::new(OBJECT_GROUP);
            self.cdp.send(release, Some(session.clone())).await?;
        }
        Ok(())
    }
}

/// The id of a node in DevTools.
enum Node {
    Backend(BackendNodeId),
    Front(NodeId),
}

async fn start_script(
    cdp: &Cdp,
    document: Document,
    world: &str,
    source: ScriptSource<'_>,
) -> Result<FrameScript, CdpError> {
    let Document {
        session,
        frame,
        parent,
    } = document;
    let mut create = CreateIsolatedWorldParams::new(frame.id.clone());
    create.world_name = Some(world.to_owned());
    let created = cdp.call(create, Some(session.clone())).await?;
    let context = created.execution_context_id;
    let evaluate = async |expression: &str| {
        let mut evaluate = EvaluateParams::new(expression);
        evaluate.context_id = Some(context);
        evaluate.object_group = Some(OBJECT_GROUP.to_owned());
        evaluate.silent = Some(true);
        let evaluated = cdp.call(evaluate, Some(session.clone())).await?;
        Ok::<_, CdpError>(evaluated.result.object_id.clone())
    };
    let earlier = match source.earlier {
        Some(earlier) => evaluate(earlier).await?,
        None => None,
    };
    let object = match earlier {
        Some(object) => Some(object),
        None => evaluate(source.text).await?,
    };
    Ok(FrameScript {
        url: frame.url,
        frame: frame.id,
        parent,
        loader: frame.loader_id,
        session,
        context,
        object: object.ok_or_else(|| CdpError::InvalidReply {
            method: EvaluateParams::IDENTIFIER.to_owned(),
            message: "the script has no object".to_owned(),
        })?,
    })
}
