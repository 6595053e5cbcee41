//! Only what a Manager granted can be claimed.

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, OwnerName, Secret, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::message::{
    Assign, HeldLease, Hello, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Report, Warrant,
};
use centrifuge_net::credential;
use centrifuge_net::proto::v1;
use centrifuge_net::secrets::KeyRing;
use centrifuge_net::warrants::WarrantKeys;
use centrifuge_server::RunningManager;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::clients::POOL;
use crate::managers::{Group, SECRET, leases, pool};
use crate::support::{self, eventually, metric, within};

/// A session that says what it likes.
pub(crate) struct Claimant {
    pub(crate) session: SessionId,
    conversation: Nonce,
    to_manager: mpsc::Sender<v1::OwnerMessage>,
    answers: Streaming<v1::ManagerMessage>,
}

impl Claimant {
    /// Says hello, and is welcome.
    pub(crate) async fn greet(at: SocketAddr, number: u128) -> Claimant {
        let mut secret = Secret::default();
        secret.0[..16].copy_from_slice(&number.to_be_bytes());
        let session = credential::session_of(&secret);
        let hello = Hello {
            namespace: pool(),
            session,
            secret,
            number: 1,
            name: OwnerName::new(&format!("claimant-{number}")).expect("a name"),
            url: "http://claimant".into(),
            takes_over_previous: false,
            formerly: None,
            age: Duration::from_secs(100),
            term: Term::ZERO,
            expects: Default::default(),
        };
        let (to_manager, messages) = mpsc::channel(8);
        let hello = v1::OwnerMessage::from(&OwnerToManager::Hello(hello));
        to_manager.try_send(hello).expect("room");
        let mut client = support::owner(at).await;
        let answers = client.session(ReceiverStream::new(messages)).await.expect("a stream").into_inner();
        let mut claimant = Claimant { session, conversation: Nonce(0), to_manager, answers };
        match claimant.answer().await {
            ManagerToOwner::Welcome(welcome) => claimant.conversation = welcome.conversation,
            other => panic!("not welcome: {other:?}"),
        }
        claimant
    }

    pub(crate) async fn answer(&mut self) -> ManagerToOwner {
        let message = within(self.answers.message()).await.expect("a stream").expect("an answer");
        ManagerToOwner::try_from(message).expect("a message")
    }

    /// Reports that it holds a lease.
    pub(crate) async fn claim(&self, held: HeldLease) {
        let report = OwnerToManager::Report(self.report(held));
        self.to_manager.send(v1::OwnerMessage::from(&report)).await.expect("it listens");
    }

    pub(crate) fn report(&self, held: HeldLease) -> Report {
        Report {
            namespace: pool(),
            session: self.session,
            conversation: self.conversation,
            seq: Seq(1),
            heard: Seq(0),
            applied: Seq(0),
            age: Duration::from_secs(100),
            held: vec![held],
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            load_dimension: Default::default(),
            load_span: Duration::ZERO,
            weight: 100,
            draining: false,
            leaving: false,
        }
    }
}

pub(crate) fn codes(secret: &[u8]) -> WarrantKeys {
    WarrantKeys::new(KeyRing::parse(secret).expect("long enough"))
}

/// A lease on the lower half, with a code that a holder of `secret` made for a session.
pub(crate) fn warranted(secret: &[u8], session: SessionId, generation: u64) -> HeldLease {
    let range = KeyRange::new(Key(0), Key(u64::MAX / 2)).expect("in order");
    let (generation, state_since) = (Generation(generation), Generation(900));
    let warrant = Warrant { range, lease: Duration::from_secs(16), virtual_nodes: 16, code: [0; 32] };
    let kind = OrderKind::Renewal;
    let order = LeaseOrder {
        range,
        generation,
        state_since,
        kind,
        merge: None,
        recall: None,
        warrant: Some(Box::new(warrant)),
    };
    let mut assign = Assign {
        namespace: pool(),
        session,
        conversation: Nonce(0),
        term: Term(1),
        seq: Seq(1),
        heard: Seq(0),
        applied: Seq(0),
        lease: Duration::from_secs(16),
        renewal: Duration::from_secs(1),
        orders: [order].into(),
        wants_answer: false,
        drain_waits: false,
        drained: false,
        void: Vec::new(),
        repeat: Vec::new(),
        evicted: false,
    };
    codes(secret).sign(&mut assign);
    HeldLease { range, generation, state_since, warrant: assign.orders[0].warrant.as_deref().copied() }
}

/// Waits until so many claims were refused for a reason.
pub(crate) async fn refused(manager: &RunningManager, why: &str, times: f64) {
    let name = format!("centrifuge_claims_refused_total{{namespace=\"{POOL}\",why=\"{why}\"}}");
    eventually(async || (metric(manager.http_addr(), &name).await >= times).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_needs_the_code_of_a_manager() {
    let group = Group::new(1, Duration::from_secs(4));
    let manager = group.start(1).await;
    within(manager.leads()).await;
    let (at, term) = (manager.grpc_addr(), manager.view().role().term);

    // Made up, made for another session, and made with another secret.
    let forger = Claimant::greet(at, 1).await;
    let mut forged = warranted(SECRET, forger.session, 1_000);
    forged.warrant = forged.warrant.map(|warrant| Warrant { code: [7; 32], ..warrant });
    forger.claim(forged).await;
    refused(&manager, "no-warrant", 1.0).await;
    let thief = Claimant::greet(at, 2).await;
    thief.claim(warranted(SECRET, forger.session, 1_000)).await;
    refused(&manager, "no-warrant", 2.0).await;
    let stranger = Claimant::greet(at, 3).await;
    stranger.claim(warranted(b"what other Managers know", stranger.session, 1_000)).await;
    refused(&manager, "no-warrant", 3.0).await;
    let wrong_codes =
        metric(manager.http_addr(), "centrifuge_rejected_input_total{kind=\"warrant-code\"}").await;
    assert!(wrong_codes >= 3.0, "{wrong_codes}");
    assert_eq!(leases(&manager), [], "nobody has anything");

    // What a Manager granted goes on as it was, and can be shown to the next leader.
    let mut holder = Claimant::greet(at, 4).await;
    holder.claim(warranted(SECRET, holder.session, 1_000)).await;
    let ManagerToOwner::Assign(assign) = holder.answer().await else { panic!("no leases") };
    let order = assign.orders.first().expect("its lease");
    assert_eq!(
        (order.kind, order.generation, order.state_since),
        (OrderKind::Renewal, Generation(1_000), Generation(900))
    );
    let LeaseOrder { range, generation, state_since, .. } = *order;
    let warrant = order.warrant.as_deref().copied();
    let mut shown = holder.report(HeldLease { range, generation, state_since, warrant });
    assert!(warrant.is_some() && codes(SECRET).check(&mut shown) == 0);
    assert_eq!(leases(&manager), [(Key(0), holder.session.to_string(), 1_000, 900)]);

    // A code alone is not enough: the lease must be one that can be, and the highest.
    let late = Claimant::greet(at, 5).await;
    late.claim(warranted(SECRET, late.session, 999)).await;
    refused(&manager, "outbid", 1.0).await;
    let ahead = Claimant::greet(at, 6).await;
    let of_this_term = Generation::before(term).expect("it fits").0 + 1;
    ahead.claim(warranted(SECRET, ahead.session, of_this_term)).await;
    refused(&manager, "impossible", 1.0).await;
    assert_eq!(leases(&manager), [(Key(0), holder.session.to_string(), 1_000, 900)]);
    manager.shutdown().await;
}
