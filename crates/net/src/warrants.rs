//! Warrants: by their codes a leader that has no store knows what Managers granted before it (ADR 15).

use std::sync::Arc;

use centrifuge_core::id::{Generation, Namespace, SessionId};
use centrifuge_core::message::{Assign, Report, Warrant};

use crate::secrets::{KeyRing, Purpose};

/// Makes and checks the codes of warrants, by the secrets that Managers share.
#[derive(Clone, Debug)]
pub struct WarrantKeys(KeyRing);

/// The lease that a warrant is for, beside what the warrant says itself.
struct Granted<'a> {
    namespace: &'a Namespace,
    session: SessionId,
    generation: u64,
    state_since: u64,
}

impl WarrantKeys {
    /// The keys that follow from the secrets in a ring.
    #[must_use]
    pub fn new(ring: KeyRing) -> WarrantKeys {
        WarrantKeys(ring)
    }

    /// Puts the codes into the warrants of a message that leaves a Manager. Owners keep the latest, so that a lease
    /// that is renewed has a code by the secret that signs now.
    pub fn sign(&self, assign: &mut Assign) {
        let secrets = self.0.secrets();
        for order in Arc::make_mut(&mut assign.orders) {
            let generation = order.holds_under().0;
            let Some(warrant) = &mut order.warrant else { continue };
            let granted = Granted {
                namespace: &assign.namespace,
                session: assign.session,
                generation,
                state_since: order.state_since.0,
            };
            let code = secrets.code(Purpose::Warrants, &covered(&granted, warrant));
            warrant.code.copy_from_slice(code.as_ref());
        }
    }

    /// Takes the warrants with wrong codes from a report that enters a Manager, and says how many there were. What is left is the
    /// word of a holder of an accepted secret about this namespace, session and lease.
    pub fn check(&self, report: &mut Report) -> usize {
        let secrets = self.0.secrets();
        let (namespace, session) = (&report.namespace, report.session);
        let held = report.held.iter_mut().map(|held| (held.generation, held.state_since, &mut held.warrant));
        let released =
            report.released.iter_mut().map(|gone| (gone.generation, gone.state_since, &mut gone.warrant));
        let is_wrong = |generation: Generation, state_since: Generation, warrant: &Warrant| {
            let (generation, state_since) = (generation.0, state_since.0);
            let granted = Granted { namespace, session, generation, state_since };
            !secrets.fits(Purpose::Warrants, &warrant.code, &covered(&granted, warrant))
        };
        let shown = held.chain(released);
        let wrong = shown.filter_map(|(generation, state_since, warrant)| {
            warrant.take_if(|warrant| is_wrong(generation, state_since, warrant))
        });
        wrong.count()
    }
}

/// The bytes that a code is of. The one field that has no fixed length comes last and after its length, so that no two grants
/// have the same bytes.
fn covered(granted: &Granted<'_>, warrant: &Warrant) -> Vec<u8> {
    let Granted { namespace, session, generation, state_since } = granted;
    let name = namespace.as_str().as_bytes();
    let lease = u64::try_from(warrant.lease.as_nanos()).unwrap_or(u64::MAX);
    let mut bytes = Vec::with_capacity(76 + name.len());
    bytes.extend(session.0.0.to_be_bytes());
    for number in [*generation, *state_since, warrant.range.first().0, warrant.range.last().0, lease] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(warrant.virtual_nodes.to_be_bytes());
    bytes.extend((name.len() as u64).to_be_bytes());
    bytes.extend(name);
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use centrifuge_core::id::{Nonce, Seq, Term};
    use centrifuge_core::key::{Key, KeyRange};
    use centrifuge_core::message::{HeldLease, LeaseOrder, OrderKind, Release};

    use super::*;

    const SECRET: &str = "a secret of some length";
    const OTHER: &str = "another secret of some length";

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("in order")
    }

    fn keys(lines: &[&str]) -> WarrantKeys {
        WarrantKeys::new(KeyRing::parse(lines.join("\n").as_bytes()).expect("secrets"))
    }

    fn key() -> WarrantKeys {
        keys(&[SECRET])
    }

    fn namespace(name: &str) -> Namespace {
        Namespace::new(name).expect("a label")
    }

    fn assign() -> Assign {
        let warrant =
            Warrant { range: range(0, 99), lease: Duration::from_secs(60), virtual_nodes: 64, code: [0; 32] };
        Assign {
            namespace: namespace("pool"),
            session: SessionId(Nonce(7)),
            conversation: Nonce(9),
            term: Term(1),
            seq: Seq(1),
            heard: Seq(0),
            applied: Seq(0),
            lease: Duration::from_secs(60),
            renewal: Duration::from_secs(15),
            orders: [LeaseOrder {
                range: range(0, 99),
                generation: Generation(5),
                state_since: Generation(4),
                kind: OrderKind::Renewal,
                merge: None,
                recall: None,
                warrant: Some(Box::new(warrant)),
            }]
            .into(),
            wants_answer: false,
            drain_waits: false,
            drained: false,
            void: Vec::new(),
            repeat: Vec::new(),
            evicted: false,
        }
    }

    /// The report of an Owner that holds what it was told to hold.
    fn report(assign: &Assign) -> Report {
        let held = |order: &LeaseOrder| HeldLease {
            range: order.range,
            generation: order.generation,
            state_since: order.state_since,
            warrant: order.warrant.as_deref().copied(),
        };
        Report {
            namespace: assign.namespace.clone(),
            session: assign.session,
            conversation: assign.conversation,
            seq: Seq(1),
            heard: Seq(0),
            applied: Seq(0),
            age: Duration::ZERO,
            held: assign.orders.iter().map(held).collect(),
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            load_dimension: Default::default(),
            load_span: Default::default(),
            weight: 100,
            draining: false,
            leaving: false,
        }
    }

    fn signed() -> Report {
        let mut assign = assign();
        key().sign(&mut assign);
        report(&assign)
    }

    #[test]
    fn what_a_manager_granted_is_believed_also_for_a_part_of_the_keys() {
        let mut report = signed();
        report.held[0].range = range(10, 20);
        let before = report.clone();
        assert_eq!(key().check(&mut report), 0);
        assert_eq!(report, before);
    }

    #[test]
    fn nothing_else_is_believed() {
        type Spoil = fn(&mut Report, &mut Warrant);
        let spoilt: [(&str, Spoil); 9] = [
            ("another namespace", |report, _| report.namespace = namespace("pools")),
            ("another session", |report, _| report.session = SessionId(Nonce(8))),
            ("another lease", |report, _| report.held[0].generation = Generation(6)),
            ("older state", |report, _| report.held[0].state_since = Generation(3)),
            ("more keys", |_, warrant| warrant.range = range(0, 100)),
            ("other keys", |_, warrant| warrant.range = range(1, 99)),
            ("a longer lease", |_, warrant| warrant.lease = Duration::from_secs(61)),
            ("more virtual nodes", |_, warrant| warrant.virtual_nodes = 65),
            ("another code", |_, warrant| warrant.code[31] ^= 1),
        ];
        for (what, spoil) in spoilt {
            let mut report = signed();
            let mut warrant = report.held[0].warrant.expect("signed");
            spoil(&mut report, &mut warrant);
            report.held[0].warrant = Some(warrant);
            assert_eq!(key().check(&mut report), 1, "{what}");
            assert_eq!(report.held[0].warrant, None, "{what}");
        }
    }

    #[test]
    fn a_release_shows_the_warrant_of_its_lease() {
        let mut report = signed();
        let HeldLease { range, generation, state_since, warrant } = report.held.remove(0);
        let release =
            Release { range, generation, clean_to: Some(SessionId(Nonce(8))), state_since, warrant };
        report.released = vec![release, Release { state_since: Generation(3), ..release }];
        assert_eq!(key().check(&mut report), 1);
        assert_eq!(report.released[0], release);
        assert_eq!(report.released[1].warrant, None, "older state");
    }

    #[test]
    fn other_secrets_and_other_purposes_make_other_codes() {
        assert_eq!(keys(&[OTHER]).check(&mut signed()), 1);
        let mut report = signed();
        let held = &mut report.held[0];
        let (generation, state_since) = (held.generation.0, held.state_since.0);
        let granted =
            Granted { namespace: &report.namespace, session: report.session, generation, state_since };
        let shown = held.warrant.as_mut().expect("signed");
        let datagrams = key().0.secrets().code(Purpose::Datagrams, &covered(&granted, shown));
        shown.code.copy_from_slice(datagrams.as_ref());
        assert_eq!(key().check(&mut report), 1);
        assert!(!format!("{:?}", key()).contains("secret"), "it is never printed");
    }

    #[test]
    fn a_warrant_outlives_the_secret_that_signed_it_by_one_step_of_a_rotation() {
        let steps = [&[SECRET][..], &[SECRET, OTHER], &[OTHER, SECRET], &[OTHER]];
        let report_at = |step: &[&str]| {
            let mut assign = assign();
            keys(step).sign(&mut assign);
            report(&assign)
        };
        for pair in steps.windows(2) {
            assert_eq!(keys(pair[1]).check(&mut report_at(pair[0])), 0, "the next leader is a step ahead");
            assert_eq!(keys(pair[0]).check(&mut report_at(pair[1])), 0, "the next leader is a step behind");
        }
        assert_eq!(keys(steps[2]).check(&mut report_at(steps[0])), 0, "from before the rotation");
        assert_eq!(keys(steps[3]).check(&mut report_at(steps[0])), 1, "the old secret is over");
    }

    #[test]
    fn what_has_no_warrant_needs_no_code() {
        let mut report = report(&Assign { orders: [].into(), ..assign() });
        assert_eq!(key().check(&mut report), 0);
    }
}
