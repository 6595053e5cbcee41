//! A server of copies: keeps the newest version that it was given, and knows nothing of other copies.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use centrifuge::LeasedMap;

use super::{CopyName, Versioned};
use crate::shared::http::{Reply, under_lease};

type Copies = LeasedMap<CopyName, Versioned>;
type Shared = State<Copies>;
/// The name and the number of a copy.
type Place = Path<(String, u32)>;

pub(super) fn routes(pool: &str, copies: Copies) -> Router {
    let path = format!("/{pool}/{{name}}/copies/{{number}}");
    Router::new().route(&path, get(read).put(write)).with_state(copies)
}

async fn read(State(copies): Shared, Path((name, number)): Place) -> Reply {
    let copy = copies.get(&CopyName { name, number })?;
    copies.recheck(&copy)?;
    Ok(under_lease(&copy))
}

/// Answers with what is there afterwards.
async fn write(State(copies): Shared, Path((name, number)): Place, Json(new): Json<Versioned>) -> Reply {
    let copy = copies.with(&CopyName { name, number }, |slot| keep_newest(slot, new))?;
    copies.recheck(&copy)?;
    Ok(under_lease(&copy))
}

/// An older version than what is there changes nothing: it comes late, or again.
fn keep_newest(slot: &mut Option<Versioned>, new: Versioned) -> Option<Versioned> {
    if slot.as_ref().is_none_or(|old| old.version < new.version) {
        *slot = Some(new);
    }
    slot.clone()
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;

    #[test]
    fn the_newest_version_stays() {
        let version = |counter, writer: &str| {
            let version = Version { counter, writer: writer.to_owned() };
            Versioned { value: format!("{counter}{writer}").into(), version }
        };
        let mut slot = None;
        let in_order_of_arrival = [(1, "b"), (1, "a"), (2, "a"), (1, "c"), (2, "a")];
        let kept = in_order_of_arrival
            .map(|(counter, writer)| keep_newest(&mut slot, version(counter, writer)).map(|kept| kept.value));
        assert_eq!(kept, ["1b", "1b", "2a", "2a", "2a"].map(|value| Some(value.into())));
    }
}
