//! Keys as users write them, which mean what their namespace makes of them.

use std::str::FromStr;

use centrifuge_core::key::Key;
use centrifuge_core::namespace_kind::{Keys, NamespaceKind, unescape};
use centrifuge_net::convert::read_namespace_kind;
use centrifuge_net::proto::v1;

use crate::At;
use crate::admin::Admin;
use crate::failure::Failure;

/// A key: text is an application key, and 0x with up to sixteen digits is a point of the key space itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyArg {
    Point(Key),
    Text(String),
}

impl FromStr for KeyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyArg, String> {
        match text.strip_prefix("0x") {
            Some(digits) => {
                u64::from_str_radix(digits, 16).map(|key| KeyArg::Point(Key(key))).map_err(|_| {
                    "0x stands for a point of the key space, up to sixteen hexadecimal digits".to_owned()
                })
            }
            None => Ok(KeyArg::Text(text.to_owned())),
        }
    }
}

impl KeyArg {
    /// The key in a namespace of a kind. Application keys that are ordered may have escapes, as their prefix may.
    pub(crate) fn of_kind(&self, kind: &NamespaceKind) -> Result<Key, Failure> {
        match (self, &kind.keys) {
            (KeyArg::Point(key), _) => Ok(*key),
            (KeyArg::Text(text), Keys::Hashed) => Ok(Key::of(text.as_bytes())),
            (KeyArg::Text(text), keys @ Keys::Ordered(_)) => {
                let bytes = unescape(text).map_err(|error| Failure::usage(error.to_string()))?;
                keys.key_of(&bytes).map_err(|error| Failure::usage(error.to_string()))
            }
        }
    }

    /// The key in a namespace, which is asked what it is if that matters.
    pub(crate) async fn in_namespace(&self, at: &At, namespace: &str) -> Result<Key, Failure> {
        match self {
            KeyArg::Point(key) => Ok(*key),
            KeyArg::Text(_) => self.of_kind(&kind_of(at, namespace).await?),
        }
    }

    /// The key in every namespace, if it is the same in all of them.
    pub(crate) async fn anywhere(&self, at: &At) -> Result<Key, Failure> {
        if let KeyArg::Point(key) = self {
            return Ok(*key);
        }
        let mut kinds: Vec<NamespaceKind> =
            list(at, None).await?.iter().map(read_kind).collect::<Result<_, _>>()?;
        kinds.sort();
        kinds.dedup_by(|one, other| one.keys == other.keys);
        match kinds.as_slice() {
            [] => Ok(self.of_kind(&NamespaceKind::default())?),
            [only] => self.of_kind(only),
            _ => Err(Failure::usage("say which namespace: they do not make keys in the same way")),
        }
    }
}

/// What a namespace is.
pub(crate) async fn kind_of(at: &At, namespace: &str) -> Result<NamespaceKind, Failure> {
    let found = list(at, Some(namespace.to_owned())).await?;
    let found = found.first();
    found.map_or_else(|| Err(Failure::not_found(format!("there is no namespace `{namespace}`"))), read_kind)
}

/// What a namespace is, by its status.
pub(crate) fn read_kind(space: &v1::NamespaceStatus) -> Result<NamespaceKind, Failure> {
    read_namespace_kind(space.kind.clone()).map_err(|error| {
        Failure::failed(format!("this version does not know what `{}` is: {error}", space.name))
    })
}

async fn list(at: &At, namespace: Option<String>) -> Result<Vec<v1::NamespaceStatus>, Failure> {
    let request = v1::ListNamespacesRequest { namespace };
    let reply = Admin::new(&at.managers()?)
        .ask(async |mut admin| admin.list_namespaces(request.clone()).await)
        .await?;
    Ok(reply.namespaces)
}

#[cfg(test)]
mod tests {
    use centrifuge_core::namespace_kind::Mode;

    use super::*;

    fn read(text: &str) -> KeyArg {
        text.parse().expect("a key")
    }

    #[test]
    fn keys_are_text_or_points() {
        assert_eq!(read("0xff"), KeyArg::Point(Key(255)));
        assert_eq!(read("room-7"), KeyArg::Text("room-7".to_owned()));
        assert!("0xnothex".parse::<KeyArg>().is_err());
    }

    #[test]
    fn text_means_what_the_namespace_makes_of_it() {
        let hashed = NamespaceKind::default();
        let prefix = "user/".parse().expect("a prefix");
        let ordered = NamespaceKind { keys: Keys::Ordered(prefix), mode: Mode::Exclusive };
        let key = |text: &str, kind| read(text).of_kind(kind).map_err(|failure| failure.to_string());
        assert_eq!(key("user/a", &hashed), Ok(Key::of(b"user/a")));
        assert_eq!(key(r"a\b", &hashed), Ok(Key::of(br"a\b")), "hashed keys have no escapes");
        assert_eq!(key("user/a", &ordered), Ok(Key(0x61 << 56)));
        assert_eq!(key(r"user/\xff", &ordered), Ok(Key(0xff << 56)));
        assert_eq!(key("0x61", &ordered), Ok(Key(0x61)));
        let wrong = key("account/a", &ordered).expect_err("it has not the prefix");
        assert_eq!(wrong, "the key does not begin with 'user/', as all keys of this namespace do");
    }
}
