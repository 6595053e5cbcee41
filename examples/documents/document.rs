//! A document and what can be done to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shared::stamp::{NoStamp, Stamp};

/// Named sections, and the version of their last write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The last write to any section.
    pub version: Stamp,
    /// The sections by their names.
    pub sections: BTreeMap<String, Section>,
}

/// A section: any JSON, and its own last write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The last write to this section.
    pub version: Stamp,
    /// What was written.
    pub value: Value,
}

/// What a write is conditional on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing.
    Always,
    /// That there is no document.
    Absent,
    /// That the document is as it was at this version.
    At(Stamp),
}

/// The document is another than the writer believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Its version, if there is a document.
    pub(super) version: Option<Stamp>,
}

impl Condition {
    pub(super) fn read(text: Option<&str>) -> Result<Condition, NoStamp> {
        match text {
            None => Ok(Condition::Always),
            Some("none") => Ok(Condition::Absent),
            Some(version) => version.parse().map(Condition::At),
        }
    }

    fn check(self, document: Option<&Document>) -> Result<(), Mismatch> {
        let version = document.map(|document| document.version);
        let holds = match self {
            Condition::Always => true,
            Condition::Absent => version.is_none(),
            Condition::At(expected) => version == Some(expected),
        };
        if holds { Ok(()) } else { Err(Mismatch { version }) }
    }
}

/// Writes a section, if the condition holds.
pub(super) fn write(
    slot: &mut Option<Document>,
    condition: Condition,
    version: Stamp,
    section: String,
    value: Value,
) -> Result<Stamp, Mismatch> {
    condition.check(slot.as_ref())?;
    let document = slot.get_or_insert_with(|| Document { version, sections: BTreeMap::new() });
    document.version = version;
    document.sections.insert(section, Section { version, value });
    Ok(version)
}

/// Removes a section or the whole document, if the condition holds. There may be none: this may be the second
/// try of a removal that subscribers were not told of.
pub(super) fn remove(
    slot: &mut Option<Document>,
    condition: Condition,
    version: Stamp,
    section: Option<&str>,
) -> Result<Stamp, Mismatch> {
    condition.check(slot.as_ref())?;
    match (section, slot.as_mut()) {
        (Some(section), Some(document)) => {
            document.sections.remove(section);
            document.version = version;
        }
        _ => *slot = None,
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use centrifuge::Generation;
    use serde_json::json;

    use super::*;
    use crate::shared::stamp::Stamps;

    fn put(slot: &mut Option<Document>, condition: Condition, version: Stamp) -> Result<Stamp, Mismatch> {
        write(slot, condition, version, "address".to_owned(), json!("10.0.0.1"))
    }

    #[test]
    fn a_write_happens_only_if_its_condition_holds() {
        let stamps = Stamps::default();
        let next = || stamps.next(Generation(5));
        let mut slot = None;
        let unknown = next();
        assert_eq!(put(&mut slot, Condition::At(unknown), next()), Err(Mismatch { version: None }));
        assert_eq!(slot, None);
        let first = put(&mut slot, Condition::Absent, next()).expect("there is none");
        assert_eq!(put(&mut slot, Condition::Absent, next()), Err(Mismatch { version: Some(first) }));
        let second = put(&mut slot, Condition::At(first), next()).expect("it is at the first");
        assert_eq!(put(&mut slot, Condition::At(first), next()), Err(Mismatch { version: Some(second) }));
        put(&mut slot, Condition::Always, next()).expect("no condition");
    }

    #[test]
    fn a_version_of_a_document_that_was_removed_never_matches_again() {
        let stamps = Stamps::default();
        let next = || stamps.next(Generation(5));
        let mut slot = None;
        let first = put(&mut slot, Condition::Always, next()).expect("no condition");
        remove(&mut slot, Condition::At(first), next(), None).expect("it is there");
        assert_eq!(slot, None);
        remove(&mut slot, Condition::Always, next(), None).expect("a second try");
        assert_eq!(remove(&mut slot, Condition::At(first), next(), None), Err(Mismatch { version: None }));
        let anew = put(&mut slot, Condition::Always, next()).expect("no condition");
        assert_eq!(put(&mut slot, Condition::At(first), next()), Err(Mismatch { version: Some(anew) }));
    }

    #[test]
    fn sections_have_versions_of_their_own() {
        let stamps = Stamps::default();
        let next = || stamps.next(Generation(5));
        let mut slot = None;
        let first = put(&mut slot, Condition::Always, next()).expect("no condition");
        let second =
            write(&mut slot, Condition::Always, next(), "load".to_owned(), json!(7)).expect("always");
        let document = slot.clone().expect("it was written");
        assert_eq!(document.version, second);
        assert_eq!(document.sections["address"].version, first);
        let third = remove(&mut slot, Condition::At(second), next(), Some("load")).expect("it is there");
        let document = slot.expect("a document without this section");
        assert_eq!((document.version, document.sections.len()), (third, 1));
    }
}
