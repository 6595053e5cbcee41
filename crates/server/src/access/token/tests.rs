//! Tokens that prove somebody, and all the ways in which one does not.

use centrifuge_harness::Issuer;
use centrifuge_harness::issuer::encode;
use jsonwebtoken::get_current_timestamp;
use serde_json::{Value, json};

use super::*;
use crate::access::Proof;

/// Made with an RSA key of 2048 bits, for `alice`, until the year 2100.
const RSA_MODULUS: &str = "xqtt6bb3GkCjWlxTwDpa_UkR1klh2RdRQ6WtDTuuSNFnp-X4pk-CEeblApL3_4oAm8GzVUHb5LYctPlX8k3_vu6BgaWi9AOk_AxfFXfS3FPZZ4fP76lsRXNO5FB2DJ-NuT_TLHdrcDMfB2OiR6l185O_o2sAWtoCuzJTIBGDZwzYDC3xgjSVaTbIMKzjRTakeG0dc6-3D0l0ZwwuWG9XFt6b9U5iWGVHC1K3fTeR3ZDExzqNeWWtg6MqEq4LW0vcFjYOOcp_pY_434_E0yg6ksidpqIX5CYzjpQv-p43Q5U7FP29XTBXJUKaL_QJjAqGu7c8v7GynZ-Hx4oaj6e5uw";
const SIGNED_BY_RS256: &str = "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogInJzYSJ9.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIuZXhhbXBsZSIsICJhdWQiOiAiY2VudHJpZnVnZSIsICJzdWIiOiAiYWxpY2UiLCAiZXhwIjogNDEwMjQ0NDgwMH0.JGiaNoJ5LgvCVHiQc5kT3M0_KK4Kn9FBwAZbUUZG_x8UKYlL8gujTacGA9jlH8lO5hR9ebkL-aKO0sUV3Tq-3RUmV50WULtQBOvraGuzPoCA-s9lq1AGZ1k2L_mPumZ9uD-lyvKArxSNWpPB4PKaKnER-0D5cln2CKBlWy6q4UrAHF7RtX_dybzbJKpWU43z9yxlGyFTCJ1QHgeRhcfXMN4IVQjLyB0ZbCOK7qGwLuM0hwWHf-l_yjFXeMrXAHaJ2TjzziO3uooxM4hGQj4JL4rFfXU___0FdLwpXLmBjw-5O208mUWK0rxTmTpBg4RzKvqhtmPc0HLl2UiUGNzbeg";
const SIGNED_BY_PS256: &str = "eyJhbGciOiAiUFMyNTYiLCAia2lkIjogInJzYSJ9.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIuZXhhbXBsZSIsICJhdWQiOiAiY2VudHJpZnVnZSIsICJzdWIiOiAiYWxpY2UiLCAiZXhwIjogNDEwMjQ0NDgwMH0.YtYgrRZPOm4eP2bH9c34_hTkTD4_s79AkGSB9ffNKNa1DiCKJfRxLZqixN0znBe0sNr_hAyenmM6V0neESvCuFOjzteCrEwxF5ZyueCnEk9uERuRXiseTmPDrSzD6s3MAu5pQCDEq8hTnzsGugX7kjudTBrWWqFByFYyvPyvRk3M61UoDavOFs05kZBAHB6xz7azleamwwh--LKKByqXT0K9D3QkASzPsL69XbHrc723c4IOKXLE9d-pb2_b5-LxnnDDZXMC-5f1IsvNncsPw9ARoal6MF6TvLcxROaDOhhtY9pAw49xgNIt05zbmjQCPFFE7zr_yINSRBZ-e5-V8w";
const SHORT_RSA_MODULUS: &str = "0MQ5NcwRetFKMIOYSaxMDyi6aRd1vynaO14k4KJQSyKTgWn8K4I8RaQvz5FAAb97_6bd4d8usWQSbLYck4qo1EgO-W-D-DZqhH2m_zKSMu-GAuM1sId8ntxm753wVXzuxlqaTy0prGHpixqDyFmi30AiF5KaX8QyyMiNQtjoauM";

fn settings(algorithms: &[&str]) -> TokenSettings {
    TokenSettings {
        keys: PathBuf::from("keys.json"),
        issuer: "https://issuer.example".to_owned(),
        audience: "centrifuge".to_owned(),
        algorithms: algorithms.iter().map(|name| TokenAlgorithm::new(name).expect("known")).collect(),
    }
}

fn usual() -> TokenSettings {
    TokenSettings { algorithms: TokenAlgorithm::USUAL.to_vec(), ..settings(&[]) }
}

fn tokens(issuers: &[&Issuer]) -> Tokens {
    Tokens::parse(usual(), &Issuer::key_set(issuers)).expect("keys")
}

/// What a good token says, with these changes.
fn claims(changes: &Value) -> Value {
    let now = get_current_timestamp();
    let mut claims =
        json!({"iss": "https://issuer.example", "aud": "centrifuge", "sub": "alice", "exp": now + 600});
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => claims.as_object_mut().expect("an object").remove(name),
            value => claims.as_object_mut().expect("an object").insert(name.clone(), value.clone()),
        };
    }
    claims
}

#[test]
fn a_signed_token_proves_its_subject() {
    for issuer in [Issuer::new("a"), Issuer::ed25519("a")] {
        let tokens = tokens(&[&issuer, &Issuer::new("b")]);
        let now = get_current_timestamp();
        let fine = [
            json!({}),
            json!({"aud": ["others", "centrifuge"]}),
            json!({"exp": now - 20}),
            json!({"nbf": now + 20}),
            json!({"exp": now as f64 + 0.5}),
        ];
        for changes in fine {
            let identity = tokens.verify(&issuer.sign(&claims(&changes))).expect("proven");
            assert_eq!(identity.names(), ["token:alice"]);
            assert_eq!(identity.flaw(SystemTime::now()), None, "{changes}");
            assert!(identity.flaw(SystemTime::now() + Duration::from_secs(700)).is_some(), "{changes}");
        }
        let only = json!({"alg": issuer.algorithm()});
        let alone = Tokens::parse(usual(), &Issuer::key_set(&[&issuer])).expect("a key");
        assert!(alone.verify(&issuer.sign_under(&only, &claims(&json!({})))).is_ok(), "there is one key");
    }
}

#[test]
fn rsa_counts_by_the_algorithms_that_are_allowed() {
    let key = json!({"kty": "RSA", "kid": "rsa", "n": RSA_MODULUS, "e": "AQAB", "use": "sig"});
    let keys = json!({"keys": [key]}).to_string();
    let both = Tokens::parse(settings(&["RS256", "PS256"]), &keys).expect("a key");
    for token in [SIGNED_BY_RS256, SIGNED_BY_PS256] {
        assert_eq!(both.verify(token).expect("proven").names(), ["token:alice"]);
    }
    let one = Tokens::parse(settings(&["PS256"]), &keys).expect("a key");
    assert!(one.verify(SIGNED_BY_PS256).is_ok());
    let refused = one.verify(SIGNED_BY_RS256).expect_err("not allowed");
    assert_eq!(refused, "it is signed by RS256, and its key may only be used with PS256");
    let other = SIGNED_BY_RS256.replace("JGiaNoJ5", "JGiaNoJ6");
    assert_eq!(both.verify(&other).expect_err("wrong"), "its signature is wrong");
}

#[test]
fn a_token_that_proves_nothing_says_why() {
    let (issuer, other) = (Issuer::new("a"), Issuer::new("a"));
    let (tokens, now) = (tokens(&[&issuer, &Issuer::ed25519("b")]), get_current_timestamp());
    let good = claims(&json!({}));
    let says = |changes: Value| issuer.sign(&claims(&changes));
    let under = |header: Value| issuer.sign_under(&header, &good);
    let unsigned = format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode(good.to_string()));
    let payload = encode(claims(&json!({"sub": "root"})).to_string());
    let parts: Vec<String> = says(json!({})).split('.').map(str::to_owned).collect();
    let cases = [
        (says(json!({"aud": "others"})), "meant for others"),
        (says(json!({"aud": ["others"]})), "meant for others"),
        (says(json!({"aud": null})), "no usable `aud`"),
        (says(json!({"iss": "https://other.example"})), "somebody else's"),
        (says(json!({"iss": null})), "no usable `iss`"),
        (says(json!({"exp": null})), "no usable `exp`"),
        (says(json!({"exp": "soon"})), "cannot be used"),
        (says(json!({"exp": 1e19})), "its `exp` is no time"),
        (says(json!({"exp": now - 60})), "it has expired"),
        (says(json!({"nbf": now + 60})), "not valid yet"),
        (says(json!({"sub": null})), "no usable `sub`"),
        (says(json!({"sub": ""})), "its `sub`"),
        (says(json!({"sub": "a\nb"})), "its `sub`"),
        (says(json!({"sub": "a b"})), "its `sub`"),
        (unsigned, "unknown variant `none`"),
        (under(json!({"alg": "none", "kid": "a"})), "unknown variant `none`"),
        (under(json!({"alg": "HS256", "kid": "a"})), "it is signed by HS256"),
        (under(json!({"alg": "EdDSA", "kid": "a"})), "may only be used with ES256"),
        (under(json!({"alg": "ES256", "kid": "c\u{1b}"})), "its key `c\\u{1b}` is not among"),
        (under(json!({"alg": "ES256"})), "it does not say by which key"),
        (under(json!({"alg": "ES256", "kid": "a", "crit": ["exp"]})), "`crit`"),
        (other.sign(&good), "its signature is wrong"),
        (format!("{}.{payload}.{}", parts[0], parts[2]), "its signature is wrong"),
        (format!("{}.{}", parts[0], parts[1]), "header cannot be used"),
        ("x".repeat(MAX_TOKEN_BYTES + 1), "longer than"),
        (String::new(), "header cannot be used"),
    ];
    for (token, words) in cases {
        let refused = tokens.verify(&token).expect_err(words);
        assert!(refused.contains(words), "{refused:?} should say {words:?}");
        assert!(refused.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{refused:?}");
    }
}

#[test]
fn keys_that_cannot_be_used_say_where_and_why() {
    let key = Issuer::new("a").jwk();
    let with = |name: &str, value: Value| {
        let mut key = key.clone();
        key.as_object_mut().expect("an object").insert(name.to_owned(), value);
        json!({"keys": [key]}).to_string()
    };
    let short = json!({"kty": "RSA", "n": SHORT_RSA_MODULUS, "e": "AQAB"});
    let cases = [
        ("{\n\"keys\": [}".to_owned(), "keys.json:2: is no JWK set"),
        ("[]".to_owned(), "is no JWK set"),
        (
            json!({"keys": []}).to_string(),
            "has no key for any of the allowed algorithms (ES256, EdDSA, RS256)",
        ),
        (json!({"keys": [{"kty": "oct", "k": "AAAA"}]}).to_string(), "key number 1 is symmetric"),
        (json!({"keys": [key, key]}).to_string(), "key number 2 has the same `kid`"),
        (json!({"keys": [short]}).to_string(), "is too short"),
        (json!({"keys": [{"kid": "a"}]}).to_string(), "has no `kty`"),
        (with("x", json!(7)), "cannot be read"),
        (with("d", json!("secret")), "is a private key"),
        (with("use", json!("enc")), "has no key for any"),
        (with("alg", json!("ES384")), "has no key for any"),
        (with("crv", json!("P-384")), "has no key for any"),
        (with("kty", json!("LATTICE")), "has no key for any"),
    ];
    for (text, words) in cases {
        let error = Tokens::parse(usual(), &text).expect_err(words).to_string();
        assert!(error.starts_with("keys.json") && error.contains(words), "{error}\nshould say {words}");
        assert!(!error.contains("secret"), "{error}");
    }
    for name in ["none", "HS256", "es256", ""] {
        assert!(TokenAlgorithm::new(name).expect_err(name).contains("never allowed"));
    }
}

#[test]
fn a_key_that_is_gone_is_not_known_under_its_old_name() {
    let (old, new) = (Issuer::new("a"), Issuer::new("a"));
    let identity = tokens(&[&old]).verify(&old.sign(&claims(&json!({})))).expect("proven");
    let Proof::Token(key) = identity.proof() else { panic!("a token") };
    assert!(tokens(&[&old, &Issuer::new("b")]).has(key));
    assert!(!tokens(&[&new]).has(key));
}
