//! What the namespaces of a world are, and who tries to use one in the wrong way.

use std::sync::Arc;

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::Key;
use centrifuge_core::namespace_kind::{KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use super::draw::{Clocks, Whose};
use super::plan::OwnerPlan;
use super::{NamespacePlan, Part, Rng};

/// What is drawn of a namespace's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    /// Hashed keys, and nobody takes them for others.
    Plain,
    /// Hashed keys, and somebody takes them for ordered ones.
    Mistaken,
    /// Ordered keys, and somebody takes them for hashed ones.
    Ordered,
}

/// Of eight namespaces three have ordered keys. Their keys draw it, so that all else is as if there were no kinds.
fn drawn(keys: &[Key]) -> Drawn {
    match keys[1].0 % 8 {
        0..3 => Drawn::Ordered,
        3 => Drawn::Mistaken,
        _ => Drawn::Plain,
    }
}

/// What a namespace with these keys is, at first and if it is created again.
pub(super) fn kinds_of(keys: &[Key], mode: Mode) -> [NamespaceKind; 2] {
    let ordered = |prefix: &[u8]| {
        let prefix = KeyPrefix::new(prefix).expect("a short prefix");
        NamespaceKind { keys: Keys::Ordered(prefix), mode }
    };
    match drawn(keys) {
        Drawn::Plain | Drawn::Mistaken => [0, 1].map(|_| NamespaceKind { keys: Keys::Hashed, mode }),
        Drawn::Ordered => [ordered(PREFIX), ordered(b"account/")],
    }
}

/// The prefix of ordered keys at first.
const PREFIX: &[u8] = b"user/";

/// What these keys would be if they were made in the other way, of the same application keys.
pub(super) fn foreign_keys(keys: &[Key]) -> Vec<Key> {
    let foreign = |key: &Key| match drawn(keys) {
        // An application key that has this key after the prefix.
        Drawn::Ordered => Key::of(&[PREFIX, &key.0.to_be_bytes()].concat()),
        // Nobody knows an application key of this hash; one that is as good is the hash itself.
        Drawn::Plain | Drawn::Mistaken => Key::in_order(&key.0.swap_bytes().to_be_bytes()),
    };
    keys.iter().map(foreign).collect()
}

/// What divides ordered keys.
pub(super) fn divider(keys: &[Key]) -> PartitionerKind {
    if keys[2].0.is_multiple_of(2) { PartitionerKind::Trim } else { PartitionerKind::Fixed }
}

/// Ordered keys are not divided by a hash, but by this other one.
pub(super) fn suit(settings: Vec<Arc<Settings>>, keys: &[Key], other: PartitionerKind) -> Vec<Arc<Settings>> {
    let suited = |settings: Arc<Settings>| match settings.partitioner {
        PartitionerKind::ConsistentHash if drawn(keys) == Drawn::Ordered => {
            Arc::new(Settings { partitioner: other, ..(*settings).clone() })
        }
        _ => settings,
    };
    settings.into_iter().map(suited).collect()
}

/// Adds an Owner that is built for the other kind to each namespace that somebody takes for it.
pub(super) fn add_misfits(owners: &mut Vec<OwnerPlan>, namespaces: &[NamespacePlan]) {
    for (namespace, plan) in namespaces.iter().enumerate() {
        if drawn(&plan.keys) == Drawn::Plain {
            continue;
        }
        let mut rng = Rng::new(plan.keys[3].0);
        let number = owners.len();
        owners.push(OwnerPlan {
            namespace,
            name: OwnerName::new(&format!("owner-{number}")).expect("a plain name"),
            url: format!("node-{number}").as_str().into(),
            weight: 100,
            migrates: true,
            mode: plan.kind().mode,
            clock: Clocks::draw(&mut rng).clock(&mut rng, Whose::Relying),
            part: Part::Misfit,
        });
    }
}
