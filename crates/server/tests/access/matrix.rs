//! Every method and every page, for everybody that there could be.

use std::time::Duration;

use centrifuge::Security;
use centrifuge_harness::Issuer;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::{FILE_DESCRIPTOR_SET, v1};
use centrifuge_server::access::Permission;
use prost::Message;

use super::calls::{Outcome, call, get, hello};
use super::pki::Pair;
use super::reload::wait;
use super::{HOUR, Secured};

/// What a caller needs for a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    In(Permission),
    /// In all namespaces.
    Everywhere(Permission),
    Anything,
}

/// Somebody who calls.
struct Somebody {
    what: String,
    shows: Security,
    /// What they may do, and whether that is where the calls go.
    may: Option<(Permission, bool)>,
    /// No connection comes about.
    is_shut_out: bool,
}

/// Every method of our services.
pub(crate) fn methods() -> Vec<String> {
    let files = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("descriptors").file;
    let mut paths = Vec::new();
    for file in &files {
        for service in &file.service {
            let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
            paths.extend(service.method.iter().map(|method| path(method.name())));
        }
    }
    paths
}

/// A request that would do something in a namespace, and what it needs. A method that is not here fails the test.
pub(crate) fn request(path: &str, namespace: &str) -> (Vec<u8>, Needs) {
    use Permission::{Administer, Lookup, Operate, Own, View};
    let (namespace, owner, why) = (namespace.to_owned(), "nobody".to_owned(), String::new());
    let all = Some(v1::KeyRange { first: 0, last: u64::MAX });
    let (message, needs) = match path {
        "/centrifuge.v1.Owner/Session" => (hello(&namespace, "a-1"), Needs::In(Own)),
        "/centrifuge.v1.Lookup/Watch" => {
            let lookup = vec![1; 16];
            (
                v1::WatchRequest { namespace, lookup: lookup.into(), seq: 1, ..Default::default() }
                    .encode_to_vec(),
                Needs::In(Lookup),
            )
        }
        "/centrifuge.v1.Admin/Status" => (v1::StatusRequest {}.encode_to_vec(), Needs::Anything),
        "/centrifuge.v1.Admin/ListNamespaces" => {
            (v1::ListNamespacesRequest { namespace: Some(namespace) }.encode_to_vec(), Needs::In(View))
        }
        "/centrifuge.v1.Admin/ListOwners" => {
            (v1::ListOwnersRequest { namespace }.encode_to_vec(), Needs::In(View))
        }
        "/centrifuge.v1.Admin/ListLeases" => {
            (v1::ListLeasesRequest { namespace, ..Default::default() }.encode_to_vec(), Needs::In(View))
        }
        "/centrifuge.v1.Admin/ListQuarantines" => {
            (v1::ListQuarantinesRequest { namespace }.encode_to_vec(), Needs::In(View))
        }
        "/centrifuge.v1.Admin/ReleaseQuarantine" => {
            let request = v1::ReleaseQuarantineRequest { namespace, range: all, why };
            (request.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/History" => {
            let request = v1::HistoryRequest { namespace: Some(namespace), ..Default::default() };
            (request.encode_to_vec(), Needs::In(View))
        }
        "/centrifuge.v1.Admin/CreateNamespace" => {
            let request = v1::CreateNamespaceRequest { namespace, settings: None, kind: None };
            (request.encode_to_vec(), Needs::In(Administer))
        }
        "/centrifuge.v1.Admin/ConfigureNamespace" => {
            let settings = Some(v1::Settings { max_moves: Some(7), ..Default::default() });
            let request = v1::ConfigureNamespaceRequest { namespace, settings, expected: None, kind: None };
            (request.encode_to_vec(), Needs::In(Administer))
        }
        "/centrifuge.v1.Admin/DeleteNamespace" => {
            let namespace = format!("{namespace}-gone");
            (v1::DeleteNamespaceRequest { namespace }.encode_to_vec(), Needs::In(Administer))
        }
        "/centrifuge.v1.Admin/Freeze" => {
            (v1::FreezeRequest { namespace, why }.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/Unfreeze" => {
            (v1::UnfreezeRequest { namespace, why }.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/Move" => {
            (v1::MoveRequest { namespace, range: all, to: None, why }.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/Drain" => {
            (v1::DrainRequest { namespace, owner, why }.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/Undrain" => {
            (v1::UndrainRequest { namespace, owner, why }.encode_to_vec(), Needs::In(Operate))
        }
        "/centrifuge.v1.Admin/Evict" => {
            (v1::EvictRequest { namespace, owner, why }.encode_to_vec(), Needs::In(Administer))
        }
        "/centrifuge.v1.Admin/Backup" => {
            (v1::BackupRequest {}.encode_to_vec(), Needs::Everywhere(Administer))
        }
        path => panic!("{path} is new: say here what it needs"),
    };
    (message, needs)
}

const PAGES: [(&str, Option<Needs>); 4] = [
    ("/health", None),
    ("/ready", None),
    ("/metrics", Some(Needs::Everywhere(Permission::Metrics))),
    ("/status", Some(Needs::Everywhere(Permission::View))),
];

impl Somebody {
    fn is_allowed(&self, needs: Needs) -> bool {
        match (needs, self.may) {
            (_, None) => false,
            (Needs::Anything, Some(_)) => true,
            (Needs::In(needed), Some((may, here))) => needed == may && here,
            // A rule about metrics is about no namespace.
            (Needs::Everywhere(Permission::Metrics), Some((may, _))) => may == Permission::Metrics,
            (Needs::Everywhere(_), Some(_)) => false,
        }
    }
}

/// One rule for each permission here and elsewhere, and one for Owners of another name.
fn rules() -> String {
    let mut rules = String::new();
    for permission in Permission::ALL {
        for place in ["mine", "other"] {
            let word = permission.as_str();
            let names = if permission == Permission::Own { "owner_names = [\"a-*\"]\n" } else { "" };
            rules += &format!(
                "[[allow]]\nwho = [\"spiffe://test/{word}/{place}\", \"token:{word}:{place}\"]\nmay = [\"{word}\"]\n\
                 namespaces = [\"{place}\", \"{place}-*\"]\n{names}"
            );
        }
    }
    rules
        + "[[allow]]\nwho = [\"spiffe://test/own/wrong-name\", \"spiffe://test/view/flawed\"]\n\
           may = [\"own\", \"view\", \"lookup\"]\nnamespaces = [\"other\"]\nowner_names = [\"b-*\"]\n"
}

fn everybody(secured: &Secured) -> Vec<Somebody> {
    let pki = &secured.pki;
    let show = |what: &str, shows, may| Somebody { what: what.to_owned(), shows, may, is_shut_out: false };
    let mut everybody = vec![show("nobody", secured.trusts(), None)];
    let somebody = |what: &str, pair: &Pair, may| {
        show(what, Security { tls: Some(pki.tls(pair)), token_file: None }, may)
    };
    for permission in Permission::ALL {
        for (place, here) in [("mine", true), ("other", false)] {
            let word = permission.as_str();
            let pair = pki.issue(&format!("{word}-{place}"), &format!("spiffe://test/{word}/{place}"), HOUR);
            everybody.push(somebody(&format!("{word} in {place}"), &pair, Some((permission, here))));
            let token = secured.token(&format!("{word}-{place}"), &format!("{word}:{place}"), HOUR);
            let shows = Security { token_file: Some(token), ..secured.trusts() };
            everybody.push(show(&format!("{word} in {place} by token"), shows, Some((permission, here))));
        }
    }
    let root = pki.tls(&secured.root);
    let bad =
        |what: &str, token| show(what, Security { tls: Some(root.clone()), token_file: Some(token) }, None);
    // A token counts instead of the certificate, even if that could do everything.
    everybody.push(bad("root with a token in no rule", secured.token("stranger", "stranger", HOUR)));
    everybody.push(bad("root with an expired token", secured.token("expired", "view:mine", Duration::ZERO)));
    let unknown = secured.token_of(&Issuer::new("unknown"), "unknown", "view:mine", HOUR);
    everybody.push(bad("root with a token of somebody else", unknown));
    let stranger = pki.issue("stranger", "spiffe://test/stranger", HOUR);
    everybody.push(somebody("in no rule", &stranger, None));
    let wrong = pki.issue("wrong-name", "spiffe://test/own/wrong-name", HOUR);
    everybody.push(somebody("own under another name", &wrong, Some((Permission::Own, false))));
    let revoked = pki.issue("revoked", "spiffe://test/view/mine", HOUR);
    pki.revoke(&[&revoked]);
    let expired = pki.issue("expired", "spiffe://test/view/mine", Duration::from_secs(2));
    for (what, pair) in [("expired", &expired), ("revoked", &revoked)] {
        let somebody = Somebody { is_shut_out: true, ..somebody(what, pair, None) };
        somebody.shows.check().expect("valid until now");
        everybody.push(somebody);
    }
    everybody
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_policy_allows_succeeds() {
    let secured = Secured::start(&rules()).await;
    secured.create("mine").await;
    secured.create("other").await;
    let everybody = everybody(&secured);
    for somebody in everybody.iter().filter(|somebody| somebody.is_shut_out) {
        wait_until_shut_out(&secured, somebody).await;
    }
    let mut wrong = Vec::new();
    let mut cells = 0;
    for somebody in &everybody {
        let dialer = Dialer::secured(somebody.shows.clone());
        for path in methods() {
            let (message, needs) = request(&path, "mine");
            let outcome = call(&dialer, &secured.id(), &path, message).await;
            cells += 1;
            if (outcome == Outcome::LetIn) != somebody.is_allowed(needs) {
                wrong.push(format!("{}: {path}: {outcome:?}", somebody.what));
            }
        }
        for (page, needs) in PAGES {
            let status = get(&somebody.shows, secured.manager.http_addr(), page).await;
            let allowed = needs.is_none_or(|needs| somebody.is_allowed(needs)) && !somebody.is_shut_out;
            cells += 1;
            if (status == Some(200)) != allowed {
                wrong.push(format!("{}: {page}: {status:?}", somebody.what));
            }
        }
    }
    println!("{cells} cells, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    secured.manager.shutdown().await;
}

/// Waits until a certificate makes no connection any more: it runs out soon, or the Manager is about to read that it is revoked. A
/// client that has read it while it was valid goes on to show it.
async fn wait_until_shut_out(secured: &Secured, somebody: &Somebody) {
    let is_out = async || get(&somebody.shows, secured.manager.http_addr(), "/health").await.is_none();
    wait(is_out).await;
}
