//! The one place that says yes or no.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use axum::http::{HeaderMap, header};
use centrifuge_core::manager::StreamId;

use super::identity::Identity;
use super::policy::{Access, Policy};
use super::token::Tokens;

/// What may be done by whom, and the streams and connections of those who were let in.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    /// `None`: everybody may do everything.
    policy: RwLock<Option<Arc<Policy>>>,
    /// `None`: no token counts.
    tokens: RwLock<Option<Arc<Tokens>>>,
    streams: Mutex<HashMap<StreamId, Stand>>,
    /// Those whose connections or streams are open.
    identities: Mutex<Vec<Weak<Identity>>>,
}

/// What a stream does, and for whom.
#[derive(Debug)]
struct Stand {
    who: Option<Arc<Identity>>,
    doing: Vec<Access>,
}

/// Why something is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Nobody has said who asks.
    Anonymous,
    /// Who asks is not proven any more.
    Flawed(&'static str),
    /// A token proves nothing.
    BadToken(String),
    /// No rule allows it.
    Forbidden,
}

impl Authority {
    /// Decides by a policy from now on.
    pub(crate) fn obey(&self, policy: Arc<Policy>) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Some(policy);
    }

    /// Believes these tokens from now on.
    pub(crate) fn believe(&self, tokens: Arc<Tokens>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Some(tokens);
    }

    /// The tokens that count.
    pub(crate) fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who sends a request: whom its token proves, if it has one, else whom its connection's certificate does. A token would be
    /// readable on its way unless the way is private.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Arc<Identity>>,
        is_private: bool,
    ) -> Result<Option<Arc<Identity>>, Denial> {
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        let Some(first) = shown.next().filter(|_| self.policy().is_some()) else {
            return Ok(certificate.cloned());
        };
        let refuse = |why: &str| Err(Denial::BadToken(why.to_owned()));
        let Some(tokens) = self.tokens() else {
            return refuse("these Managers accept none: their `token_keys` is not set");
        };
        if !is_private {
            return refuse("tokens are accepted only inside TLS or from the same machine");
        }
        let bearer = first.to_str().ok().and_then(|text| text.split_once(' '));
        let Some((_, token)) = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return refuse("the header `authorization` must be `Bearer` and a token");
        };
        if shown.next().is_some() {
            return refuse("there are two of them");
        }
        let identity = Arc::new(tokens.verify(token.trim()).map_err(Denial::BadToken)?);
        self.know(&identity);
        Ok(Some(identity))
    }

    /// Whether somebody may do something now.
    pub(crate) fn decide(&self, who: Option<&Identity>, access: &Access) -> Result<(), Denial> {
        let Some(policy) = self.policy() else { return Ok(()) };
        if let Some(flaw) = who.and_then(|who| who.flaw(SystemTime::now())) {
            return Err(Denial::Flawed(flaw));
        }
        let names = who.map_or(&[][..], Identity::names);
        match (policy.allows(names, access), who) {
            (true, _) => Ok(()),
            (false, None) => Err(Denial::Anonymous),
            (false, Some(_)) => Err(Denial::Forbidden),
        }
    }

    fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes somebody whose connection or stream is open, until that is dropped.
    pub(crate) fn know(&self, who: &Arc<Identity>) {
        let mut identities = lock(&self.identities);
        if identities.len() == identities.capacity() {
            identities.retain(|who| who.strong_count() > 0);
        }
        identities.push(Arc::downgrade(who));
    }

    /// Those whose connections or streams are open.
    pub(crate) fn identities(&self) -> Vec<Arc<Identity>> {
        lock(&self.identities).iter().filter_map(Weak::upgrade).collect()
    }

    /// Notes what a stream does, so that it can be ended when that is not allowed any more.
    pub(crate) fn note(&self, stream: StreamId, who: Option<&Arc<Identity>>, access: Access) {
        let mut streams = lock(&self.streams);
        let stand = streams.entry(stream).or_insert_with(|| Stand { who: who.cloned(), doing: Vec::new() });
        if !stand.doing.contains(&access) {
            stand.doing.push(access);
        }
    }

    /// A stream is over.
    pub(crate) fn forget(&self, stream: StreamId) {
        lock(&self.streams).remove(&stream);
    }

    /// The streams that do what is not allowed any more, with what that is.
    pub(crate) fn outlawed(&self) -> Vec<(StreamId, Option<Arc<Identity>>, Access, Denial)> {
        let streams = lock(&self.streams);
        let judged = streams.iter().filter_map(|(stream, stand)| {
            let denied = |access: &Access| {
                let denial = self.decide(stand.who.as_deref(), access).err()?;
                Some((*stream, stand.who.clone(), access.clone(), denial))
            };
            stand.doing.iter().find_map(denied)
        });
        judged.collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
