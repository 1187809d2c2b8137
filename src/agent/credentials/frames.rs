//! The frames of a page as their scripts see them.

use crate::{
    agent::chromium::front::FrontPage,
    system::cdp::frame_scripts::{FrameScript, ScriptCallError},
};

/// The most frames that are looked at.
pub(super) const MAX_FRAMES: usize = 64;

/// Makes the closed shadow trees of a frame accessible to its script. Returns whether there are
/// any.
pub(super) async fn adopt_closed_trees(page: &FrontPage, script: &FrameScript) -> bool {
    let adopted = script.in_time(async {
        let inputs = page.session.all_inputs(script).await?;
        let call = page
            .session
            .call_script_with_elements(script, "adopt", &inputs);
        call.await
    });
    let adopted: Result<_, ScriptCallError> = adopted.await;
    adopted.is_ok_and(|count| count.as_u64() > Some(0))
}

/// Whether a user sees a frame: the element that contains it, and those of the frames around it.
pub(super) async fn is_drawn(page: &FrontPage, scripts: &[FrameScript], mut index: usize) -> bool {
    while index > 0 {
        let owner = page.session.frame_owner(scripts, &scripts[index]).await;
        let Ok(Some((parent, element))) = owner else {
            return false;
        };
        let (script, elements) = (&scripts[parent], [element]);
        let call = page
            .session
            .call_script_with_elements(script, "isDrawn", &elements);
        if !matches!(script.in_time(call).await, Ok(drawn) if drawn == true) {
            return false;
        }
        index = parent;
    }
    true
}
