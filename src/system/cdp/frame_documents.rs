//! The documents in the frames of a tab, and the sessions with those frames.
//!
//! A session with a frame that has a process of its own stays until the frame is closed.

use chromiumoxide::cdp::browser_protocol::{
    page::{Frame, FrameId, FrameTree, GetFrameTreeParams},
    target::{AttachToTargetParams, GetTargetsParams, SessionId, TargetInfo},
};
use futures::future::join_all;
use serde_json::json;
use tokio::time;

use super::{
    connection::{Cdp, CdpError},
    frame_scripts::FRAME_TIMEOUT,
    tab::TabSession,
};

/// A document in a frame of a tab.
pub(super) struct Document {
    pub(super) session: SessionId,
    pub(super) frame: Frame,
    /// The frame around it.
    pub(super) parent: Option<FrameId>,
}

impl TabSession {
    /// Returns the documents of the tab, its own first. No other process than its own has to
    /// respond but those of permitted frames.
    pub(super) async fn documents(
        &self,
        max: usize,
        permits: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<Document>, CdpError> {
        let mut documents = Vec::new();
        let tree = frame_tree(&self.cdp, &self.id).await?;
        add_documents(&tree, &self.id, None, permits, &mut documents);
        let mut targets = self.frame_targets().await?;
        self.forget_closed_frames(&targets);
        targets.retain(|target| permits(&target.url));
        while !targets.is_empty() && documents.len() < max {
            let is_child = |target: &TargetInfo| {
                let parent = target.parent_frame_id.as_ref();
                documents
                    .iter()
                    .any(|known| Some(&known.frame.id) == parent)
            };
            let (children, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(is_child);
            if children.is_empty() {
                break;
            }
            let trees = children.iter().map(|target| async {
                let attached = self.attach_to_frame(target);
                time::timeout(FRAME_TIMEOUT, attached).await.ok()?.ok()
            });
            let trees = join_all(trees).await;
            for (target, (session, tree)) in children
                .into_iter()
                .zip(trees)
                .filter_map(|(target, tree)| Some((target, tree?)))
            {
                let parent = target.parent_frame_id;
                add_documents(&tree, &session, parent, permits, &mut documents);
            }
            targets = others;
        }
        Ok(documents)
    }

    /// Returns the frames of all tabs that have a process of their own.
    async fn frame_targets(&self) -> Result<Vec<TargetInfo>, CdpError> {
        let frames = json!({ "filter": [{ "type": "iframe" }] });
        let params: GetTargetsParams = serde_json::from_value(frames).unwrap_or_default();
        Ok(self.cdp.call(params, None).await?.target_infos.clone())
    }

    fn forget_closed_frames(&self, targets: &[TargetInfo]) {
        let mut sessions = self.frame_sessions.lock();
        sessions.retain(|id, _| targets.iter().any(|target| target.target_id.inner() == id));
    }

    async fn attach_to_frame(
        &self,
        target: &TargetInfo,
    ) -> Result<(SessionId, FrameTree), CdpError> {
        let id = target.target_id.inner();
        let known = self.frame_sessions.lock().get(id).cloned();
        // The session of a frame that has got another process is gone.
        if let Some(session) = known
            && let Ok(tree) = frame_tree(&self.cdp, &session).await
        {
            return Ok((session, tree));
        }
        let attach = AttachToTargetParams {
            target_id: target.target_id.clone(),
            flatten: Some(true),
        };
        let session = self.cdp.call(attach, None).await?.session_id.clone();
        let tree = frame_tree(&self.cdp, &session).await?;
        let mut sessions = self.frame_sessions.lock();
        sessions.insert(id.clone(), session.clone());
        Ok((session, tree))
    }
}

pub(super) async fn frame_tree(cdp: &Cdp, session: &SessionId) -> Result<FrameTree, CdpError> {
    let tree = cdp.call(GetFrameTreeParams::default(), Some(session.clone()));
    Ok(tree.await?.frame_tree.clone())
}

/// Adds the documents of a tree, the parents first: the first one of all, and those that are
/// permitted by their address. `parent` contains the frame at the root of the tree.
pub(super) fn add_documents(
    tree: &FrameTree,
    session: &SessionId,
    parent: Option<FrameId>,
    permits: &dyn Fn(&str) -> bool,
    documents: &mut Vec<Document>,
) {
    if documents.is_empty() || permits(&tree.frame.url) {
        documents.push(Document {
            session: session.clone(),
            frame: tree.frame.clone(),
            parent: parent.or_else(|| tree.frame.parent_id.clone()),
        });
    }
    for child in tree.child_frames.iter().flatten() {
        let parent = Some(tree.frame.id.clone());
        add_documents(child, session, parent, permits, documents);
    }
}
