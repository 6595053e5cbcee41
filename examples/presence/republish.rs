//! What the client of an in-memory service keeps, and how it publishes that again when it is told that it was lost.
//!
//! Three rules make it right:
//! 1. What is published is kept before it is sent, so that a loss that is told meanwhile includes it.
//! 2. A loss only marks what is due. Whoever publishes it again takes the mark off first and reads what is kept then: a
//!    newer publication is sent instead of an older one, and a loss that is told while it is sent marks it again.
//! 3. Publications have numbers, and servers keep the highest: sending again is never wrong, so that whatever
//!    is in doubt is sent again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use centrifuge::Key;
use centrifuge::lookup::Loss;
use serde::Serialize;
use tokio::sync::Notify;

use super::Publication;

/// How long until another try after one that failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What the users of one frontend published last.
#[derive(Debug)]
pub struct Publications {
    inner: Mutex<Inner>,
    more: Notify,
    ttl: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    users: HashMap<String, User>,
    /// Whom to publish again, the longest due first.
    due: VecDeque<String>,
    counts: Counts,
}

#[derive(Debug)]
struct User {
    publication: Publication,
    since: Instant,
    standing: Standing,
    is_due: bool,
}

/// Where a user's publication stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// How often it was told that the state of the user's key is lost.
    pub losses: u64,
    /// How often it was published again, be it by the user's next word.
    pub again: u64,
    /// A loss was told, and nothing that was sent since has arrived as far as is known.
    pub is_lost: bool,
}

/// What was told and done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Users whose publications are kept.
    pub users: usize,
    /// Those of them whose publications are lost and not yet published again.
    pub lost: usize,
    /// Losses that were told.
    pub losses: u64,
    /// Publications that were made again.
    pub again: u64,
}

/// A publication on its way.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Whose it is.
    pub user: String,
    /// What it says.
    pub publication: Publication,
    /// The losses told by then: an answer that comes after another one says nothing of what is there now.
    losses: u64,
}

/// How a publication fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A server has it.
    Arrived,
    /// A server has something newer, with this number.
    Newer(u64),
}

impl Publications {
    /// Nothing yet. Whoever says nothing for `ttl` is forgotten here, as the servers do.
    pub fn new(ttl: Duration) -> Publications {
        Publications { inner: Mutex::default(), more: Notify::new(), ttl }
    }

    /// Keeps a publication, unless a newer one is kept. To be called before it is sent.
    pub fn keep(&self, user: &str, publication: Publication) -> Sending {
        let mut inner = self.inner();
        let known = inner.users.entry(user.to_owned()).or_insert_with(|| User::new(publication.clone()));
        if publication.number > known.publication.number {
            known.publication = publication.clone();
        }
        known.since = Instant::now();
        Sending { user: user.to_owned(), publication, losses: known.standing.losses }
    }

    /// A server has it.
    pub fn arrived(&self, sent: &Sending) {
        let mut inner = self.inner();
        let Some(user) = inner.users.get_mut(&sent.user) else { return };
        if user.standing.losses == sent.losses {
            user.standing.is_lost = false;
        }
    }

    /// Nobody needs it any more; something newer that is kept stays.
    pub fn forget(&self, sent: &Sending) {
        let mut inner = self.inner();
        let is_it = |user: &User| user.publication.number == sent.publication.number;
        if inner.users.get(&sent.user).is_some_and(is_it) {
            inner.users.remove(&sent.user);
        }
    }

    /// Whether something newer than that is kept.
    pub fn has_newer(&self, sent: &Sending) -> bool {
        let inner = self.inner();
        inner.users.get(&sent.user).is_some_and(|user| user.publication.number > sent.publication.number)
    }

    /// A loss was told: what is kept of its keys is due, and nothing else.
    pub fn lost(&self, loss: &Loss) {
        let mut guard = self.inner();
        let Inner { users, due, counts } = &mut *guard;
        counts.losses += 1;
        users.retain(|_, user| user.since.elapsed() < self.ttl);
        for (name, user) in users.iter_mut().filter(|(name, _)| loss.keys.contains(Key::of(name.as_bytes())))
        {
            user.standing.losses += 1;
            user.standing.is_lost = true;
            user.mark(name, due);
        }
        drop(guard);
        self.more.notify_waiters();
    }

    /// Forgets who has said nothing for long. To be called now and then; a loss does so by itself.
    pub fn sweep(&self) {
        self.inner().users.retain(|_, user| user.since.elapsed() < self.ttl);
    }

    /// Takes what is due the longest, as it is now.
    async fn next_due(&self) -> Sending {
        loop {
            let more = self.more.notified();
            if let Some(sending) = self.inner().take_due() {
                return sending;
            }
            more.await;
        }
    }

    /// Something that was due was sent.
    fn sent_again(&self, sent: &Sending) {
        self.arrived(sent);
        self.count_again(&sent.user);
    }

    /// A server has something newer: from the user's next word here, which is kept, or from another frontend.
    fn is_outdated(&self, sent: &Sending) {
        if self.has_newer(sent) {
            self.count_again(&sent.user);
        } else {
            self.forget(sent);
        }
    }

    fn count_again(&self, name: &str) {
        let mut inner = self.inner();
        inner.counts.again += 1;
        if let Some(user) = inner.users.get_mut(name) {
            user.standing.again += 1;
        }
    }

    /// It is not known whether it arrived: it is due again, after all others.
    fn put_back(&self, sent: &Sending) {
        let mut guard = self.inner();
        let Inner { users, due, .. } = &mut *guard;
        if let Some(user) = users.get_mut(&sent.user) {
            user.mark(&sent.user, due);
        }
        drop(guard);
        self.more.notify_waiters();
    }

    /// Where a user's publication stands.
    pub fn standing(&self, user: &str) -> Option<Standing> {
        self.inner().users.get(user).map(|user| user.standing)
    }

    /// What was told and done.
    pub fn counts(&self) -> Counts {
        let inner = self.inner();
        let lost = inner.users.values().filter(|user| user.standing.is_lost).count();
        Counts { users: inner.users.len(), lost, ..inner.counts }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes again whatever is due, one after the other, without end. `send` says how it went, or that it is
/// not known. Run several, and let `send` give up soon: then a key that has no owner yet does not keep the
/// others waiting.
pub async fn republish<F, E>(publications: &Publications, send: impl Fn(Sending) -> F)
where
    F: Future<Output = Result<Outcome, E>>,
{
    loop {
        let sending = publications.next_due().await;
        match send(sending.clone()).await {
            Ok(Outcome::Arrived) => publications.sent_again(&sending),
            Ok(Outcome::Newer(_)) => publications.is_outdated(&sending),
            Err(_) => {
                publications.put_back(&sending);
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

impl Inner {
    fn take_due(&mut self) -> Option<Sending> {
        while let Some(name) = self.due.pop_front() {
            // Who has signed off since has nothing to publish.
            if let Some(user) = self.users.get_mut(&name) {
                user.is_due = false;
                let (publication, losses) = (user.publication.clone(), user.standing.losses);
                return Some(Sending { user: name, publication, losses });
            }
        }
        None
    }
}

impl User {
    fn new(publication: Publication) -> User {
        User { publication, since: Instant::now(), standing: Standing::default(), is_due: false }
    }

    /// Once is enough, however often.
    fn mark(&mut self, name: &str, due: &mut VecDeque<String>) {
        if !std::mem::replace(&mut self.is_due, true) {
            due.push_back(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use centrifuge::KeyRange;
    use centrifuge::lookup::LossReason;
    use centrifuge_core::range_set::RangeSet;

    use super::*;

    fn says(number: u64) -> Publication {
        Publication { number, presence: None }
    }

    fn publications(users: &[&str]) -> Publications {
        let publications = Publications::new(Duration::from_secs(3600));
        for user in users {
            publications.arrived(&publications.keep(user, says(1)));
        }
        publications
    }

    fn loss_of(user: &str) -> Loss {
        let keys = RangeSet::from_ranges([KeyRange::one(Key::of(user.as_bytes()))]);
        Loss { keys, why: LossReason::StateBeganAnew }
    }

    fn due(publications: &Publications) -> Option<(String, u64)> {
        publications.inner().take_due().map(|sending| (sending.user, sending.publication.number))
    }

    #[test]
    fn only_what_was_lost_is_due() {
        let publications = publications(&["ada", "bob"]);
        publications.lost(&loss_of("ada"));
        publications.lost(&loss_of("eve"));
        assert_eq!(due(&publications), Some(("ada".to_owned(), 1)));
        assert_eq!(due(&publications), None);
        assert!(publications.standing("bob").is_some_and(|standing| !standing.is_lost));
        assert_eq!(publications.counts(), Counts { users: 2, lost: 1, losses: 2, again: 0 });
    }

    #[test]
    fn a_newer_publication_takes_the_place_of_the_one_that_was_lost() {
        let publications = publications(&["ada"]);
        publications.lost(&loss_of("ada"));
        publications.keep("ada", says(2));
        assert_eq!(due(&publications), Some(("ada".to_owned(), 2)));
    }

    #[test]
    fn a_loss_told_while_it_is_sent_again_makes_it_due_again() {
        let publications = publications(&["ada"]);
        publications.lost(&loss_of("ada"));
        let sending = publications.inner().take_due().expect("it is due");
        publications.lost(&loss_of("ada"));
        publications.sent_again(&sending);
        assert!(publications.standing("ada").is_some_and(|standing| standing.is_lost), "it is gone again");
        assert_eq!(due(&publications), Some(("ada".to_owned(), 1)));
    }

    #[test]
    fn an_answer_from_before_the_loss_confirms_nothing() {
        let publications = publications(&["ada"]);
        let sending = publications.keep("ada", says(2));
        publications.lost(&loss_of("ada"));
        publications.arrived(&sending);
        assert!(publications.standing("ada").is_some_and(|standing| standing.is_lost));
        assert_eq!(due(&publications), Some(("ada".to_owned(), 2)));
    }

    #[test]
    fn what_was_published_elsewhere_is_forgotten_and_what_is_newer_is_not() {
        let publications = publications(&["ada"]);
        let old = publications.keep("ada", says(1));
        let new = publications.keep("ada", says(2));
        publications.forget(&old);
        assert!(publications.standing("ada").is_some());
        publications.forget(&new);
        assert!(publications.standing("ada").is_none());
    }

    #[test]
    fn whoever_has_said_nothing_for_long_is_not_brought_back() {
        let publications = Publications::new(Duration::ZERO);
        publications.keep("ada", says(1));
        publications.lost(&loss_of("ada"));
        assert_eq!(due(&publications), None);
        assert_eq!(publications.counts().users, 0);
    }

    #[tokio::test]
    async fn what_is_in_doubt_is_sent_again() {
        let publications = publications(&["ada"]);
        publications.lost(&loss_of("ada"));
        let tries = std::cell::Cell::new(0);
        let send = |_| {
            tries.set(tries.get() + 1);
            let outcome = if tries.get() < 3 { Err("no answer") } else { Ok(Outcome::Arrived) };
            std::future::ready(outcome)
        };
        let done = async {
            while publications.counts().again == 0 {
                tokio::time::sleep(RETRY_INTERVAL / 10).await;
            }
        };
        tokio::select! {
            () = republish(&publications, send) => {}
            () = done => {}
        }
        assert_eq!(tries.get(), 3);
        assert_eq!(publications.counts(), Counts { users: 1, lost: 0, losses: 1, again: 1 });
    }
}
