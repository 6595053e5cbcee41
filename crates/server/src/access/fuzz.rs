//! Whatever is put into the files and requests that decide about access: it is refused in words, or understood. `cargo xtask fuzz`
//! runs these for longer.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

use centrifuge_harness::Issuer;
use centrifuge_harness::pki::Authority;
use centrifuge_net::tls::{FileContents, read_certificate, read_certificates};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::pattern::{Bindings, NamePattern, WhoPattern};
use super::policy::{Access, Permission, Policy};
use super::token::{TokenAlgorithm, TokenSettings, Tokens};

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Cut(Index, u8),
    Insert(Index, &'static str),
    /// A piece from elsewhere.
    Copy(Index, Index, u8),
}

/// What the texts are made of.
const WORDS: [&str; 20] = [
    "\"",
    "'",
    "[[allow]]\n",
    "who",
    "may",
    "own",
    "namespaces",
    "{name}",
    "{namespace}",
    "**",
    "*",
    "://",
    "token:",
    ".",
    "none",
    "HS256",
    "null",
    "[",
    "}",
    "\u{0}",
];

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let mutation = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), 1..40_u8).prop_map(|(at, length)| Mutation::Cut(at, length)),
        (any::<Index>(), select(&WORDS[..])).prop_map(|(at, word)| Mutation::Insert(at, word)),
        (any::<Index>(), any::<Index>(), 1..40_u8)
            .prop_map(|(from, to, length)| Mutation::Copy(from, to, length)),
    ];
    vec(mutation, 1..6)
}

fn mutate(bytes: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for mutation in mutations {
        let size = bytes.len();
        match mutation {
            _ if size == 0 => {}
            Mutation::Set(at, byte) => bytes[at.index(size)] = *byte,
            Mutation::Cut(at, length) => {
                let from = at.index(size);
                bytes.drain(from..(from + usize::from(*length)).min(size));
            }
            Mutation::Insert(at, word) => {
                let at = at.index(size);
                bytes.splice(at..at, word.bytes());
            }
            Mutation::Copy(from, to, length) => {
                let (from, to) = (from.index(size), to.index(size));
                let piece = bytes[from..(from + usize::from(*length)).min(size)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

fn mutate_text(text: &str, mutations: &[Mutation]) -> String {
    String::from_utf8_lossy(&mutate(text.as_bytes(), mutations)).into_owned()
}

fn settings() -> TokenSettings {
    TokenSettings {
        keys: PathBuf::from("keys.json"),
        issuer: "issuer".to_owned(),
        audience: "audience".to_owned(),
        algorithms: TokenAlgorithm::USUAL.to_vec(),
    }
}

/// Keys, and a token that counts.
static SIGNED: LazyLock<(String, String)> = LazyLock::new(|| {
    let (issuer, other) = (Issuer::new("a"), Issuer::ed25519("b"));
    let claims = json!({"iss": "issuer", "aud": "audience", "sub": "alice", "exp": 4_102_444_800_u64});
    (Issuer::key_set(&[&issuer, &other]), issuer.sign(&claims))
});

const POLICY: &str = r#"
[[allow]]
who = ["spiffe://prod/{namespace}/{name}", "token:system:serviceaccount:{namespace}:{name}"]
may = ["own", "lookup"]
namespaces = ["{namespace}", "{namespace}-*"]
owner_names = ["{name}", "{name}-*"]

[[allow]]
who = ["spiffe://prod/ops/**", "anyone"]
may = ["view", "operate", "administer", "metrics"]
namespaces = ["*"]
"#;

/// A certificate with names of each kind.
static CERTIFICATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let names = ["owner.example".to_owned(), "spiffe://prod/chat/a".to_owned()];
    let (from, to) = (SystemTime::UNIX_EPOCH, SystemTime::now());
    let issued =
        Authority::new("an authority").and_then(|ca| ca.issue(&names, "nobody", from, to)).expect("issued");
    let file = FileContents { path: PathBuf::new(), bytes: issued.cert.into_bytes() };
    read_certificates(&file).expect("a certificate")[0].to_vec()
});

/// Whether a text matches a glob, slowly and surely.
fn matches_slowly(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => (0..=text.len()).any(|skipped| matches_slowly(rest, &text[skipped..])),
        ([first, rest @ ..], [next, others @ ..]) => first == next && matches_slowly(rest, others),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_that_was_changed_proves_nobody(mutations in mutations()) {
        let (keys, token) = &*SIGNED;
        let tokens = Tokens::parse(settings(), keys).expect("keys");
        let changed = mutate_text(token, &mutations);
        let message = |token: &str| token.rsplit_once('.').map(|(message, _)| message.to_owned());
        if let Ok(identity) = tokens.verify(&changed) {
            prop_assert_eq!(message(&changed), message(token), "it says something else");
            prop_assert_eq!(identity.names(), ["token:alice"]);
        }
    }

    #[test]
    fn any_token_is_refused_in_words(token in "\\PC{0,80}|([A-Za-z0-9_=-]{0,40}\\.){0,4}") {
        let tokens = Tokens::parse(settings(), &SIGNED.0).expect("keys");
        let words = tokens.verify(&token).expect_err("nobody signed it");
        prop_assert!(words.len() < 2_000 && words.chars().all(|c| c != '\n' && c != '\u{1b}'), "{:?}", words);
    }

    #[test]
    fn a_file_of_keys_is_read_or_refused(mutations in mutations()) {
        if let Err(error) = Tokens::parse(settings(), &mutate_text(&SIGNED.0, &mutations)) {
            prop_assert!(error.to_string().starts_with("keys.json"), "{}", error);
        }
    }

    #[test]
    fn a_policy_is_read_or_refused_and_never_fails_to_decide(
        mutations in mutations(),
        who in vec("[a-z:/.{}*]{0,30}", 0..3),
        namespace in "[a-z*{}-]{0,10}",
    ) {
        match Policy::parse(Path::new("policy.toml"), &mutate_text(POLICY, &mutations)) {
            Err(error) => prop_assert!(error.to_string().starts_with("policy.toml"), "{}", error),
            Ok(policy) => {
                let own = Access::Own { namespace: namespace.clone(), name: namespace.clone() };
                let here = Permission::ALL.map(|permission| Access::In(permission, namespace.clone()));
                let everywhere = Permission::ALL.map(Access::Everywhere);
                // Whoever may do something everywhere may do it here.
                for (everywhere, here) in everywhere.iter().zip(&here) {
                    let is_metrics = here.permission() == Some(Permission::Metrics);
                    prop_assert!(is_metrics || !policy.allows(&who, everywhere) || policy.allows(&who, here));
                }
                prop_assert!(!policy.allows(&who, &own) || policy.allows(&who, &Access::Somewhere(Permission::Own)));
            }
        }
    }

    #[test]
    fn globs_match_what_a_slow_matcher_matches(glob in "[ab*]{1,8}", text in "[ab]{0,10}") {
        let pattern = NamePattern::new(&glob).expect("a pattern");
        prop_assert_eq!(pattern.matches(&text, &Bindings::default()), matches_slowly(glob.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn no_pattern_lets_a_part_reach_beyond_its_end(name in "[a-z/]{0,20}") {
        let pattern = WhoPattern::new("spiffe://a/*").expect("a pattern");
        let full = format!("spiffe://a/{name}");
        prop_assert_eq!(pattern.matches(&full).is_some(), !name.contains('/'));
    }

    #[test]
    fn the_names_of_a_certificate_are_plain_or_it_is_refused(mutations in mutations()) {
        if let Ok(read) = read_certificate(&mutate(&CERTIFICATE, &mutations)) {
            let is_plain = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert!(read.names.iter().all(is_plain), "{:?}", read.names);
        }
    }
}
