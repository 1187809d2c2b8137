//! What a viewer has said and is still to be done: it is heard at once and done in its order.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

use crate::api::live::ViewerMessage;

/// Beyond so much whoever says it waits.
const MAX_WAITING: usize = 64;
const MAX_BYTES: usize = 1 << 20;

/// The end at which something is said; once it is dropped, nothing more will be.
pub struct Teller(Arc<Said>);

/// The other one.
pub struct Doer(Arc<Said>);

pub fn said() -> (Teller, Doer) {
    let said = Arc::new(Said {
        waiting: Mutex::new(Waiting {
            messages: VecDeque::new(),
            ended: false,
            heard: Instant::now(),
        }),
        came: Notify::new(),
        taken: Notify::new(),
    });
    (Teller(said.clone()), Doer(said))
}

struct Said {
    waiting: Mutex<Waiting>,
    came: Notify,
    taken: Notify,
}

struct Waiting {
    messages: VecDeque<ViewerMessage>,
    ended: bool,
    /// When something was said last.
    heard: Instant,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl Teller {
    /// Something was said, whatever it was.
    pub fn hear(&self) {
        self.0.lock().heard = Instant::now();
    }

    pub async fn tell(&self, message: ViewerMessage) {
        let mut message = message;
        loop {
            let added = self.0.lock().add(message);
            match added {
                Ok(()) => return self.0.came.notify_one(),
                Err(back) => message = back,
            }
            self.0.taken.notified().await;
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.came.notify_one();
    }
}

impl Doer {
    /// The next that is to be done; nothing once there is nothing more to come.
    pub async fn next(&self) -> Option<ViewerMessage> {
        loop {
            {
                let mut waiting = self.0.lock();
                if let Some(message) = waiting.messages.pop_front() {
                    // Who was kept waiting could not be heard.
                    waiting.heard = Instant::now();
                    self.0.taken.notify_one();
                    return Some(message);
                }
                if waiting.ended {
                    return None;
                }
            }
            self.0.came.notified().await;
        }
    }

    pub fn heard(&self) -> Instant {
        self.0.lock().heard
    }
}

impl Waiting {
    /// Gives it back where too much is waiting. Of several moves in a row the last counts, and turns of the wheel add up.
    fn add(&mut self, message: ViewerMessage) -> Result<(), ViewerMessage> {
        use ViewerMessage::{PointerMove, Wheel};
        let message = match (self.messages.back_mut(), message) {
            (Some(last @ PointerMove { .. }), message @ PointerMove { .. }) => {
                *last = message;
                return Ok(());
            }
            (
                Some(Wheel {
                    x,
                    y,
                    delta_x,
                    delta_y,
                }),
                Wheel {
                    x: new_x,
                    y: new_y,
                    delta_x: more_x,
                    delta_y: more_y,
                },
            ) => {
                (*x, *y) = (new_x, new_y);
                (*delta_x, *delta_y) = (delta_x.and(more_x), delta_y.and(more_y));
                return Ok(());
            }
            (_, message) => message,
        };
        let bytes: usize = self.messages.iter().map(text_of).sum();
        if self.messages.len() >= MAX_WAITING || bytes > 0 && bytes + text_of(&message) > MAX_BYTES
        {
            return Err(message);
        }
        self.messages.push_back(message);
        Ok(())
    }
}

fn text_of(message: &ViewerMessage) -> usize {
    match message {
        ViewerMessage::Text { text } | ViewerMessage::Paste { text: Some(text) } => text.bytes(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    fn message(value: Value) -> ViewerMessage {
        let Ok(message) = deserr::deserialize::<_, _, JsonError>(value.clone()) else {
            panic!("{value}");
        };
        message
    }

    fn tell(teller: &Teller, value: Value) -> bool {
        teller.tell(message(value)).now_or_never().is_some()
    }

    fn next(doer: &Doer) -> Option<ViewerMessage> {
        doer.next().now_or_never().flatten()
    }

    #[test]
    fn moves_and_turns_in_a_row_are_one() {
        let (teller, doer) = said();
        let wheel = |x: u32, delta: i32| json!({"type": "wheel", "x": x, "y": 0, "delta_x": 1, "delta_y": delta});
        for value in [
            json!({"type": "pointer_move", "x": 1, "y": 1}),
            json!({"type": "pointer_move", "x": 2, "y": 1}),
            wheel(3, 100),
            wheel(4, -30),
            json!({"type": "release"}),
            json!({"type": "pointer_move", "x": 5, "y": 1}),
        ] {
            assert!(tell(&teller, value));
        }
        let Some(ViewerMessage::PointerMove { x, .. }) = next(&doer) else {
            panic!("no move");
        };
        assert_eq!(x.pixels(), 2);
        let Some(ViewerMessage::Wheel {
            x,
            delta_x,
            delta_y,
            ..
        }) = next(&doer)
        else {
            panic!("no turn");
        };
        assert_eq!((x.pixels(), delta_x.pixels(), delta_y.pixels()), (4, 2, 70));
        assert!(matches!(next(&doer), Some(ViewerMessage::Release)));
        assert!(matches!(
            next(&doer),
            Some(ViewerMessage::PointerMove { .. })
        ));
        assert!(next(&doer).is_none());
    }

    #[tokio::test]
    async fn who_says_too_much_waits_until_some_of_it_is_taken() {
        let (teller, doer) = said();
        let release = || json!({"type": "release"});
        for _ in 0..MAX_WAITING {
            assert!(tell(&teller, release()));
        }
        let mut more = Box::pin(teller.tell(message(release())));
        assert!((&mut more).now_or_never().is_none());
        assert!(next(&doer).is_some());
        more.await;
        let mut taken = 0;
        while next(&doer).is_some() {
            taken += 1;
        }
        assert_eq!(taken, MAX_WAITING);
    }

    #[test]
    fn long_texts_do_not_pile_up() {
        let (teller, _doer) = said();
        let text = || json!({"type": "paste", "text": "a".repeat(MAX_BYTES)});
        assert!(tell(&teller, text()));
        assert!(tell(&teller, json!({"type": "release"})));
        assert!(!tell(&teller, text()));
    }

    #[tokio::test]
    async fn what_was_said_is_done_after_its_viewer_has_gone() {
        let (teller, doer) = said();
        assert!(tell(&teller, json!({"type": "release"})));
        drop(teller);
        assert!(doer.next().await.is_some());
        assert!(doer.next().await.is_none());
    }
}
