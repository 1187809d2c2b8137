//! The user that scripts run as if the agent is root.

use std::io;

use nix::unistd::{Gid, Uid};

use crate::{
    agent::settings::ChildUser,
    system::process::{dedicated_uid, session::Credentials},
};

/// The uid and gid of `nobody`, for user namespaces without dedicated uids.
const NOBODY: u32 = 65_534;

/// Chooses the user of scripts. `None` if the agent is not root: scripts run as its user.
///
/// A dedicated uid is chosen anew at each start, because no file of a script outlives the agent,
/// and is never `chromium`, the uid of Chromium.
pub(in crate::agent) fn find_user(
    setting: &ChildUser,
    chromium: Uid,
) -> io::Result<Option<Credentials>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let uid = match setting {
        ChildUser::Named(credentials) => return Ok(Some(credentials.clone())),
        ChildUser::Dedicated if dedicated_uid::are_mapped() => {
            dedicated_uid::find(None, Some(chromium))?
        }
        ChildUser::Dedicated => {
            tracing::warn!(
                uid = NOBODY,
                "this user namespace has no uid for scripts alone: other processes of that uid \
                 can interfere with scripts"
            );
            Uid::from_raw(NOBODY)
        }
    };
    tracing::info!(%uid, "decided which user scripts run as");
    let gid = Gid::from_raw(uid.as_raw());
    let groups = Vec::new();
    Ok(Some(Credentials { uid, gid, groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_none_of_the_system_unless_one_is_named() {
        let chromium = Uid::from_raw(0x7000_0001);
        let chosen = find_user(&ChildUser::Dedicated, chromium).unwrap();
        if !Uid::effective().is_root() {
            assert_eq!(chosen, None);
            return;
        }
        let chosen = chosen.unwrap();
        assert_eq!(chosen.uid.as_raw(), chosen.gid.as_raw());
        assert!(chosen.groups.is_empty() && chosen.uid != chromium);
        let entry = nix::unistd::User::from_uid(chosen.uid).unwrap();
        assert!(entry.is_none(), "{entry:?}");
        let named = find_user(&ChildUser::Named(chosen.clone()), chromium).unwrap();
        assert_eq!(named, Some(chosen));
    }
}
