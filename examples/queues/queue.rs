//! A queue: what waits for its client, and what it watches for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use centrifuge::fence::StaleLease;
use centrifuge::{Fence, Generation, Key};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::watch::Sight;
use crate::shared::stamp::Stamp;

/// Everything that is kept for one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Queue {
    incarnation: Stamp,
    /// The number of the next entry.
    next: u64,
    entries: VecDeque<Entry>,
    /// What the client has in other pools.
    interests: BTreeMap<String, Interest>,
    fence: Fence,
}

/// Something for the client to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    number: u64,
    at_ms: u64,
    /// About how much memory it takes, and room on its way to another server.
    bytes: usize,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Message(Value),
    /// The state of names in another pool is lost: publish it again, subscribe again, read again.
    Lost(Lost),
    /// So many entries are gone unread, all up to this number; losses may be among them.
    Dropped(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Lost {
    pool: String,
    names: Vec<String>,
}

/// What a client has in one other pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Interest {
    /// When the state of each name began, as far as the client was told.
    names: BTreeMap<String, Option<Generation>>,
    /// The last alarm that the client was told of.
    alarm: Option<u64>,
}

/// The names that a client has something of, by pool.
pub(super) type Interests = BTreeMap<String, BTreeSet<String>>;

/// How much waits, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) ttl_ms: u64,
    pub(super) most: usize,
    pub(super) most_bytes: usize,
}

/// What a client is told when it opens its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Opened {
    pub(super) incarnation: Stamp,
    /// Whether this is another queue than the client knew, so that messages and losses may have been missed.
    pub(super) missed: bool,
}

/// What a client reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Read {
    /// `None`: there is no queue; open it again.
    incarnation: Option<Stamp>,
    missed: bool,
    messages: Vec<Entry>,
}

impl Read {
    /// Whether the client should not be kept waiting.
    pub(super) fn is_news(&self) -> bool {
        self.missed || !self.messages.is_empty()
    }
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    NoQueue,
    Stale(StaleLease),
}

/// The client claims to have read what was never there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverThere;

/// Opens a queue for a client that knew the incarnation `known`; makes one with the stamp `fresh` if there is none.
pub(super) fn open(
    slot: &mut Option<Queue>,
    known: Option<Stamp>,
    fresh: Stamp,
    interests: Interests,
    (sight, now_ms): (&impl Sight, u64),
) -> Opened {
    let queue = slot.get_or_insert_with(|| Queue::new(fresh));
    // What is lost by now is told by the interests that the client had until now.
    queue.look(sight, now_ms);
    queue.set_interests(interests, sight);
    Opened { incarnation: queue.incarnation, missed: known != Some(queue.incarnation) }
}

/// Takes a message in, and says what number it got.
pub(super) fn enqueue(
    slot: &mut Option<Queue>,
    topic: &str,
    lease: Generation,
    message: Value,
    limits: Limits,
    (sight, now_ms): (&impl Sight, u64),
) -> Result<u64, NotTaken> {
    let queue = slot.as_mut().ok_or(NotTaken::NoQueue)?;
    queue.fence.accept(Key::of(topic.as_bytes()), lease).map_err(NotTaken::Stale)?;
    queue.look(sight, now_ms);
    let number = queue.push(What::Message(message), now_ms);
    queue.trim(limits, now_ms);
    Ok(number)
}

/// Forgets what the client has, all up to `after`, and gives it the rest.
pub(super) fn read(
    slot: &mut Option<Queue>,
    known: Option<Stamp>,
    after: u64,
    limits: Limits,
    (sight, now_ms): (&impl Sight, u64),
) -> Result<Read, NeverThere> {
    let Some(queue) = slot.as_mut().filter(|queue| known == Some(queue.incarnation)) else {
        let incarnation = slot.as_ref().map(|queue| queue.incarnation);
        return Ok(Read { incarnation, missed: true, messages: Vec::new() });
    };
    if after >= queue.next {
        return Err(NeverThere);
    }
    queue.entries.retain(|entry| entry.number > after);
    queue.look(sight, now_ms);
    queue.trim(limits, now_ms);
    let messages = queue.entries.iter().cloned().collect();
    Ok(Read { incarnation: Some(queue.incarnation), missed: false, messages })
}

impl Queue {
    fn new(incarnation: Stamp) -> Queue {
        let (entries, interests, fence) = (VecDeque::new(), BTreeMap::new(), Fence::new());
        Queue { incarnation, next: 1, entries, interests, fence }
    }

    fn push(&mut self, what: What, at_ms: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let bytes = what.bytes();
        self.entries.push_back(Entry { number, at_ms, bytes, what });
        number
    }

    /// Adds what was lost in other pools since it was last looked.
    fn look(&mut self, sight: &impl Sight, now_ms: u64) {
        let mut lost = Vec::new();
        for (pool, interest) in &mut self.interests {
            let names = interest.look(pool, sight);
            if !names.is_empty() {
                lost.push(Lost { pool: pool.clone(), names });
            }
        }
        for lost in lost {
            self.push(What::Lost(lost), now_ms);
        }
    }

    /// Names that stay keep what is known of them; of new ones there is nothing to lose yet.
    fn set_interests(&mut self, wanted: Interests, sight: &impl Sight) {
        let mut before = std::mem::take(&mut self.interests);
        for (pool, names) in wanted {
            let before = before.remove(&pool).unwrap_or_default();
            let known = |name: &String| before.names.get(name).copied();
            let since = |name: String| {
                let since = known(&name).unwrap_or_else(|| sight.state_since(&pool, &name));
                (name, since)
            };
            let names = names.into_iter().map(since).collect();
            self.interests.insert(pool.clone(), Interest { names, alarm: before.alarm });
        }
    }

    /// Lets go of what is too old or too much.
    fn trim(&mut self, limits: Limits, now_ms: u64) {
        loop {
            let waiting = self.entries.iter().filter(|entry| !entry.is_word_of_dropped());
            let is_old = |entry: &Entry| entry.at_ms.saturating_add(limits.ttl_ms) <= now_ms;
            let has_too_old = waiting.clone().next().is_some_and(is_old);
            let (count, bytes) =
                waiting.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.bytes));
            if !has_too_old && count <= limits.most && bytes <= limits.most_bytes {
                return;
            }
            self.drop_oldest();
        }
    }

    /// Drops an entry, and leaves one word of all that was dropped.
    fn drop_oldest(&mut self) {
        let mut count = 0;
        while let Some(Entry { number, at_ms, what, .. }) = self.entries.pop_front() {
            match what {
                What::Dropped(earlier) => count += earlier,
                What::Message(_) | What::Lost(_) => {
                    let what = What::Dropped(count + 1);
                    self.entries.push_front(Entry { number, at_ms, bytes: 0, what });
                    return;
                }
            }
        }
    }
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            What::Message(message) => message.to_string().len(),
            What::Lost(lost) => lost.names.iter().map(String::len).sum(),
            What::Dropped(_) => 0,
        }
    }
}

impl Entry {
    fn is_word_of_dropped(&self) -> bool {
        matches!(self.what, What::Dropped(_))
    }
}

impl Interest {
    /// The names that were lost since this was last asked.
    ///
    /// Numbers only rise: a lower one is from a table that is behind, at the server that the queue has just moved to.
    fn look(&mut self, pool: &str, sight: &impl Sight) -> Vec<String> {
        let alarm = sight.alarm(pool);
        let is_alarmed = alarm.is_some() && alarm != self.alarm;
        self.alarm = alarm.or(self.alarm);
        let mut lost = Vec::new();
        for (name, known) in &mut self.names {
            let since = sight.state_since(pool, name);
            if is_alarmed || since > *known {
                lost.push(name.clone());
                *known = since.max(*known);
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests;
