//! Which stream speaks for which session, and how a copy of a process is noticed.
//!
//! A process that loses its stream opens a new one, continues the numbering of its hellos, and never uses the earlier stream again. A
//! later hello on an earlier stream therefore comes from a second process with the session's secret: a copy, made by a fork or from a
//! snapshot. Both believe that they hold the session's leases, and the Manager cannot tell which came first: both have to start over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use centrifuge_core::id::SessionId;
use centrifuge_core::manager::StreamId;

/// Who speaks for the sessions that have said hello on an open stream.
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    sessions: Mutex<HashMap<SessionId, Speaker>>,
}

#[derive(Clone, Copy, Debug)]
struct Speaker {
    stream: StreamId,
    /// The highest number of its hellos.
    hello: u64,
}

/// What a hello's number and stream say about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// This stream speaks for the session from now on.
    Speaks,
    /// The process has said hello on a later stream since.
    Stale,
    /// Another process speaks for the same session, on this stream.
    Cloned(StreamId),
}

impl Speakers {
    /// A hello that proved its session came on a stream.
    pub(crate) fn hear(&self, session: SessionId, stream: StreamId, hello: u64) -> Spoken {
        let mut sessions = self.lock();
        match sessions.get(&session).copied() {
            Some(known) if known.stream != stream && hello <= known.hello => Spoken::Stale,
            // Streams are numbered as they are opened.
            Some(known) if known.stream > stream => {
                sessions.remove(&session);
                Spoken::Cloned(known.stream)
            }
            known => {
                let highest = known.filter(|known| known.stream == stream).map_or(0, |known| known.hello);
                sessions.insert(session, Speaker { stream, hello: hello.max(highest) });
                Spoken::Speaks
            }
        }
    }

    /// Whether a stream is the one that speaks for a session.
    #[must_use]
    pub(crate) fn speaks(&self, session: SessionId, stream: StreamId) -> bool {
        self.lock().get(&session).is_some_and(|known| known.stream == stream)
    }

    /// A stream is over.
    pub(crate) fn forget(&self, sessions: &[SessionId], stream: StreamId) {
        let mut known = self.lock();
        for session in sessions {
            if known.get(session).is_some_and(|known| known.stream == stream) {
                known.remove(session);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Speaker>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::id::Nonce;

    const SESSION: SessionId = SessionId(Nonce(7));

    #[test]
    fn a_process_that_opens_another_stream_goes_on_there() {
        let speakers = Speakers::default();
        assert_eq!(speakers.hear(SESSION, StreamId(1), 1), Spoken::Speaks);
        assert_eq!(speakers.hear(SESSION, StreamId(1), 2), Spoken::Speaks);
        assert_eq!(speakers.hear(SESSION, StreamId(5), 3), Spoken::Speaks);
        assert!(speakers.speaks(SESSION, StreamId(5)) && !speakers.speaks(SESSION, StreamId(1)));
    }

    #[test]
    fn what_was_said_earlier_and_comes_later_is_stale_whichever_stream_it_comes_on() {
        let speakers = Speakers::default();
        speakers.hear(SESSION, StreamId(5), 3);
        assert_eq!(speakers.hear(SESSION, StreamId(1), 3), Spoken::Stale);
        assert_eq!(speakers.hear(SESSION, StreamId(9), 2), Spoken::Stale);
        assert!(speakers.speaks(SESSION, StreamId(5)));
    }

    #[test]
    fn a_later_hello_on_an_earlier_stream_is_that_of_a_copy_and_ends_both_claims() {
        let speakers = Speakers::default();
        speakers.hear(SESSION, StreamId(1), 1);
        speakers.hear(SESSION, StreamId(5), 2);
        assert_eq!(speakers.hear(SESSION, StreamId(1), 3), Spoken::Cloned(StreamId(5)));
        assert!(!speakers.speaks(SESSION, StreamId(5)) && !speakers.speaks(SESSION, StreamId(1)));
    }

    #[test]
    fn a_stream_that_is_over_is_forgotten_and_no_other() {
        let speakers = Speakers::default();
        speakers.hear(SESSION, StreamId(1), 1);
        speakers.hear(SESSION, StreamId(5), 2);
        speakers.forget(&[SESSION], StreamId(1));
        assert!(speakers.speaks(SESSION, StreamId(5)));
        speakers.forget(&[SESSION], StreamId(5));
        assert!(speakers.lock().is_empty());
    }
}
