//! Owners: what they say to a Manager, and what it answers.

use std::cmp::Reverse;
use std::time::Duration;

use centrifuge_core::id::{Secret, Seq, SessionId, Term};
use centrifuge_core::key::Key;
use centrifuge_core::load::{MAX_HEAVY_KEYS, MAX_QUANTILES, RangeLoad};
use centrifuge_core::message::{
    Assign, Destination, HeldLease, Hello, ImportedCopy, LeaseOrder, ManagerToOwner, MovedLease, OrderKind,
    OwnerToManager, RecallOrder, Refusal, Refused, RefusedReason, Release, Report, Warrant, Welcome,
};
use prost::bytes::Bytes;

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use super::kind::{read_expected, read_kind, write_expected, write_kind};
use crate::credential;
use crate::limits;
use crate::proto::v1;

/// The version of the protocol between Owners and Managers.
const OWNER_VERSION: u32 = 2;

impl From<&OwnerToManager> for v1::OwnerMessage {
    fn from(message: &OwnerToManager) -> v1::OwnerMessage {
        use v1::owner_message::Kind;
        let kind = match message {
            OwnerToManager::Hello(hello) => Kind::Hello(write_hello(hello)),
            OwnerToManager::Report(report) => Kind::Report(write_report(report)),
        };
        v1::OwnerMessage { kind: Some(kind) }
    }
}

impl TryFrom<v1::OwnerMessage> for OwnerToManager {
    type Error = ConvertError;

    fn try_from(wire: v1::OwnerMessage) -> Converted<OwnerToManager> {
        use v1::owner_message::Kind;
        match wire.kind {
            Some(Kind::Hello(hello)) => read_in("hello", hello, read_hello).map(OwnerToManager::Hello),
            Some(Kind::Report(report)) => read_in("report", report, read_report).map(OwnerToManager::Report),
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn write_hello(hello: &Hello) -> v1::Hello {
    let (keys, mode) = write_expected(hello.expects);
    v1::Hello {
        namespace: hello.namespace.to_string(),
        session: write_session(hello.session),
        number: hello.number,
        name: hello.name.to_string(),
        url: hello.url.to_string(),
        takes_over_previous: hello.takes_over_previous,
        formerly: hello.formerly.map(write_session),
        age_nanos: write_nanos(hello.age),
        term: hello.term.0,
        secret: Bytes::copy_from_slice(&hello.secret.0),
        version: OWNER_VERSION,
        keys,
        mode,
    }
}

fn read_hello(wire: v1::Hello) -> Converted<Hello> {
    if wire.version < OWNER_VERSION {
        return refuse("version", Problem::Version { at_least: OWNER_VERSION });
    }
    let session = read_session("session", &wire.session)?;
    Ok(Hello {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session,
        secret: read_secret("secret", &wire.secret, session)?,
        number: wire.number,
        name: read_owner_name("name", &wire.name)?,
        url: read_url("url", &wire.url)?,
        takes_over_previous: wire.takes_over_previous,
        formerly: wire.formerly.map(|session| read_session("formerly", &session)).transpose()?,
        age: Duration::from_nanos(wire.age_nanos),
        term: Term(wire.term),
        expects: read_expected(wire.keys, wire.mode)?,
    })
}

/// What proves a session; anything else is not told apart from nothing.
fn read_secret(field: &str, wire: &[u8], session: SessionId) -> Converted<Secret> {
    match <[u8; 32]>::try_from(wire).map(Secret) {
        Ok(secret) if credential::session_of(&secret) == session => Ok(secret),
        _ => refuse(field, Problem::Secret),
    }
}

fn write_report(report: &Report) -> v1::Report {
    v1::Report {
        namespace: report.namespace.to_string(),
        session: write_session(report.session),
        conversation: write_nonce(report.conversation),
        seq: report.seq.0,
        heard: report.heard.0,
        applied: report.applied.0,
        age_nanos: write_nanos(report.age),
        held: report.held.iter().map(write_held).collect(),
        released: report.released.iter().map(write_release).collect(),
        refused: report.refused.iter().map(write_refusal).collect(),
        imports: report.imports.iter().map(write_import).collect(),
        loads: report.loads.iter().map(write_load).collect(),
        load_dimension: write_load_dimension(&report.load_dimension),
        load_span_nanos: write_nanos(report.load_span),
        weight: report.weight,
        draining: report.draining,
        leaving: report.leaving,
    }
}

fn read_report(wire: v1::Report) -> Converted<Report> {
    Ok(Report {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        conversation: read_nonce("conversation", &wire.conversation)?,
        seq: read_seq("seq", wire.seq)?,
        heard: Seq(wire.heard),
        applied: Seq(wire.applied),
        age: Duration::from_nanos(wire.age_nanos),
        held: read_all_held(wire.held)?,
        released: read_bounded("released", limits::MOST_CHANGES, wire.released, read_release)?,
        refused: read_bounded("refused", limits::MOST_CHANGES, wire.refused, read_refusal)?,
        imports: read_bounded("imports", limits::MOST_CHANGES, wire.imports, read_import)?,
        loads: read_bounded("loads", limits::MOST_ITEMS, wire.loads, read_load)?,
        load_dimension: read_load_dimension("load_dimension", &wire.load_dimension)?,
        load_span: Duration::from_nanos(wire.load_span_nanos),
        weight: wire.weight,
        draining: wire.draining,
        leaving: wire.leaving,
    })
}

fn write_held(lease: &HeldLease) -> v1::HeldLease {
    v1::HeldLease {
        first: lease.range.first().0,
        last: lease.range.last().0,
        generation: lease.generation.0,
        state_since: lease.state_since.0,
        warrant: lease.warrant.as_ref().map(write_warrant),
    }
}

/// What an Owner holds is in key order, and no key is in it twice.
fn read_all_held(wire: Vec<v1::HeldLease>) -> Converted<Vec<HeldLease>> {
    let held = read_bounded("held", limits::MOST_ITEMS, wire, read_held)?;
    let overlaps = |pair: &[HeldLease]| pair[0].range.last() >= pair[1].range.first();
    match held.windows(2).position(overlaps) {
        Some(place) => refuse(&format!("held[{}]", place + 1), Problem::Overlap),
        None => Ok(held),
    }
}

fn read_held(wire: v1::HeldLease) -> Converted<HeldLease> {
    let generation = read_generation("generation", wire.generation)?;
    read_generation("state_since", wire.state_since)?;
    Ok(HeldLease {
        range: read_range(wire.first, wire.last)?,
        generation,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        warrant: read_optional("warrant", wire.warrant, read_warrant)?,
    })
}

fn write_warrant(warrant: &Warrant) -> v1::Warrant {
    v1::Warrant {
        first: warrant.range.first().0,
        last: warrant.range.last().0,
        lease_nanos: write_nanos(warrant.lease),
        virtual_nodes: warrant.virtual_nodes,
        code: Bytes::copy_from_slice(&warrant.code),
    }
}

fn read_warrant(wire: v1::Warrant) -> Converted<Warrant> {
    let code = <[u8; 32]>::try_from(&*wire.code);
    Ok(Warrant {
        range: read_range(wire.first, wire.last)?,
        lease: Duration::from_nanos(read_positive("lease_nanos", wire.lease_nanos)?),
        virtual_nodes: wire.virtual_nodes,
        code: code.map_err(|_| ConvertError::new("code", Problem::Code { len: wire.code.len() }))?,
    })
}

fn write_release(release: &Release) -> v1::Release {
    v1::Release {
        first: release.range.first().0,
        last: release.range.last().0,
        generation: release.generation.0,
        clean_to: release.clean_to.map(write_session),
        state_since: release.state_since.0,
        warrant: release.warrant.as_ref().map(write_warrant),
    }
}

fn read_release(wire: v1::Release) -> Converted<Release> {
    if wire.warrant.is_some() {
        read_generation("state_since", wire.state_since)?;
    }
    Ok(Release {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
        clean_to: wire.clean_to.map(|session| read_session("clean_to", &session)).transpose()?,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        warrant: read_optional("warrant", wire.warrant, read_warrant)?,
    })
}

fn write_moved(moved: &MovedLease) -> v1::MovedLease {
    v1::MovedLease {
        first: moved.range.first().0,
        last: moved.range.last().0,
        generation: moved.generation.0,
    }
}

fn read_moved(wire: v1::MovedLease) -> Converted<MovedLease> {
    Ok(MovedLease {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
    })
}

fn write_refusal(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        first: refusal.range.first().0,
        last: refusal.range.last().0,
        generation: refusal.generation.0,
    }
}

fn read_refusal(wire: v1::Refusal) -> Converted<Refusal> {
    Ok(Refusal {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
    })
}

fn write_import(copy: &ImportedCopy) -> v1::ImportedCopy {
    v1::ImportedCopy { first: copy.range.first().0, last: copy.range.last().0, source: copy.source.0 }
}

fn read_import(wire: v1::ImportedCopy) -> Converted<ImportedCopy> {
    Ok(ImportedCopy {
        range: read_range(wire.first, wire.last)?,
        source: read_generation("source", wire.source)?,
    })
}

/// Earlier versions know the hottest key alone, and read it where they always did.
fn write_load(load: &RangeLoad) -> v1::RangeLoad {
    let write = |(key, load): &(Key, u64)| v1::HeavyKey { key: key.0, load: *load };
    let hottest = load.heavy.iter().max_by_key(|(key, load)| (*load, Reverse(*key)));
    let others = load.heavy.iter().filter(|heavy| Some(*heavy) != hottest);
    v1::RangeLoad {
        first: load.range.first().0,
        last: load.range.last().0,
        load: load.load,
        hottest: hottest.map(write),
        heavy: others.map(write).collect(),
        quantiles: load.quantiles.iter().map(|key| key.0).collect(),
    }
}

/// Keys beyond the most that count are not looked at; what the others say, the Manager's machine bounds.
fn read_load(wire: v1::RangeLoad) -> Converted<RangeLoad> {
    let heavy = wire.hottest.into_iter().chain(wire.heavy).take(MAX_HEAVY_KEYS);
    let mut heavy: Vec<(Key, u64)> = heavy.map(|heavy| (Key(heavy.key), heavy.load)).collect();
    heavy.sort_unstable();
    let quantiles = wire.quantiles.into_iter().take(MAX_QUANTILES + 1).map(Key).collect();
    Ok(RangeLoad { range: read_range(wire.first, wire.last)?, load: wire.load, heavy, quantiles })
}

impl From<&ManagerToOwner> for v1::ManagerMessage {
    fn from(message: &ManagerToOwner) -> v1::ManagerMessage {
        use v1::manager_message::Kind;
        let kind = match message {
            ManagerToOwner::Welcome(welcome) => Kind::Welcome(write_welcome(welcome)),
            ManagerToOwner::Refused(refused) => Kind::Refused(write_refused(refused)),
            ManagerToOwner::Unknown { session, conversation } => {
                Kind::UnknownConversation(v1::UnknownConversation {
                    session: write_session(*session),
                    conversation: write_nonce(*conversation),
                })
            }
            ManagerToOwner::NotLeader { leader } => Kind::NotLeader(write_not_leader(leader.as_ref())),
            ManagerToOwner::Assign(assign) => Kind::Assign(write_assign(assign)),
        };
        v1::ManagerMessage { kind: Some(kind) }
    }
}

impl TryFrom<v1::ManagerMessage> for ManagerToOwner {
    type Error = ConvertError;

    fn try_from(wire: v1::ManagerMessage) -> Converted<ManagerToOwner> {
        use v1::manager_message::Kind;
        match wire.kind {
            Some(Kind::Welcome(welcome)) => {
                read_in("welcome", welcome, read_welcome).map(ManagerToOwner::Welcome)
            }
            Some(Kind::Refused(refused)) => {
                read_in("refused", refused, read_refused).map(ManagerToOwner::Refused)
            }
            Some(Kind::UnknownConversation(unknown)) => {
                read_in("unknown_conversation", unknown, read_unknown_conversation)
            }
            Some(Kind::NotLeader(not)) => {
                read_in("not_leader", not, read_not_leader).map(|leader| ManagerToOwner::NotLeader { leader })
            }
            Some(Kind::Assign(assign)) => read_in("assign", assign, read_assign).map(ManagerToOwner::Assign),
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn write_welcome(welcome: &Welcome) -> v1::Welcome {
    v1::Welcome {
        namespace: welcome.namespace.to_string(),
        session: write_session(welcome.session),
        number: welcome.number,
        conversation: write_nonce(welcome.conversation),
        term: welcome.term.0,
        kind: write_kind(&welcome.kind),
    }
}

fn read_welcome(wire: v1::Welcome) -> Converted<Welcome> {
    Ok(Welcome {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        number: wire.number,
        conversation: read_nonce("conversation", &wire.conversation)?,
        term: Term(wire.term),
        kind: read_kind(wire.kind)?,
    })
}

fn write_refused(refused: &Refused) -> v1::Refused {
    v1::Refused {
        session: write_session(refused.session),
        number: refused.number,
        term: refused.term.0,
        why: v1::RefusedWhy::from(refused.why).into(),
        namespace: refused.namespace.as_ref().map(ToString::to_string),
    }
}

fn read_refused(wire: v1::Refused) -> Converted<Refused> {
    Ok(Refused {
        session: read_session("session", &wire.session)?,
        number: wire.number,
        term: Term(wire.term),
        why: read_refused_why(wire.why)?,
        namespace: wire.namespace.map(|name| read_namespace("namespace", &name)).transpose()?,
    })
}

enumeration!(
    RefusedReason,
    RefusedWhy,
    "why",
    read_refused_why { NameInUse, UnknownNamespace, Evicted, TooManyOwners, StaleTerm, WrongKeys, WrongMode }
);

fn read_unknown_conversation(wire: v1::UnknownConversation) -> Converted<ManagerToOwner> {
    let session = read_session("session", &wire.session)?;
    Ok(ManagerToOwner::Unknown { session, conversation: read_nonce("conversation", &wire.conversation)? })
}

fn write_assign(assign: &Assign) -> v1::Assign {
    v1::Assign {
        namespace: assign.namespace.to_string(),
        session: write_session(assign.session),
        conversation: write_nonce(assign.conversation),
        term: assign.term.0,
        seq: assign.seq.0,
        heard: assign.heard.0,
        applied: assign.applied.0,
        lease_nanos: write_nanos(assign.lease),
        renewal_nanos: write_nanos(assign.renewal),
        orders: assign.orders.iter().map(write_order).collect(),
        wants_answer: assign.wants_answer,
        drain_waits: assign.drain_waits,
        drained: assign.drained,
        evicted: assign.evicted,
        void: assign.void.iter().map(write_import).collect(),
        repeat: assign.repeat.iter().map(write_moved).collect(),
    }
}

fn read_assign(wire: v1::Assign) -> Converted<Assign> {
    Ok(Assign {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        conversation: read_nonce("conversation", &wire.conversation)?,
        term: Term(wire.term),
        seq: read_seq("seq", wire.seq)?,
        heard: Seq(wire.heard),
        applied: Seq(wire.applied),
        lease: Duration::from_nanos(read_positive("lease_nanos", wire.lease_nanos)?),
        renewal: Duration::from_nanos(read_positive("renewal_nanos", wire.renewal_nanos)?),
        orders: read_list("orders", wire.orders, read_order)?.into(),
        wants_answer: wire.wants_answer,
        drain_waits: wire.drain_waits,
        drained: wire.drained,
        evicted: wire.evicted,
        void: read_list("void", wire.void, read_import)?,
        repeat: read_list("repeat", wire.repeat, read_moved)?,
    })
}

fn write_order(order: &LeaseOrder) -> v1::LeaseOrder {
    let (grant, source) = match order.kind {
        OrderKind::Grant { source } => (true, source),
        OrderKind::Renewal => (false, None),
    };
    v1::LeaseOrder {
        first: order.range.first().0,
        last: order.range.last().0,
        generation: order.generation.0,
        state_since: order.state_since.0,
        grant,
        source: source.map(|source| source.0),
        recall: order.recall.as_ref().map(write_recall),
        warrant: order.warrant.as_deref().map(write_warrant),
        merge: order.merge.map(|merge| merge.0),
    }
}

fn read_order(wire: v1::LeaseOrder) -> Converted<LeaseOrder> {
    let source = wire.source.map(|source| read_generation("source", source)).transpose()?;
    let kind = match (wire.grant, source) {
        (true, source) => OrderKind::Grant { source },
        (false, None) => OrderKind::Renewal,
        (false, Some(_)) => return refuse("source", Problem::Contradiction { other: "grant" }),
    };
    let generation = read_generation("generation", wire.generation)?;
    let merge = wire.merge.map(|merge| read_generation("merge", merge)).transpose()?;
    if merge.is_some() && wire.grant {
        return refuse("merge", Problem::Contradiction { other: "grant" });
    }
    if merge.is_some_and(|merge| merge <= generation) {
        return refuse("merge", Problem::Contradiction { other: "generation" });
    }
    read_generation("state_since", wire.state_since)?;
    let warrant = read_optional("warrant", wire.warrant, read_warrant)?;
    Ok(LeaseOrder {
        range: read_range(wire.first, wire.last)?,
        generation,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        kind,
        merge,
        recall: read_optional("recall", wire.recall, read_recall)?,
        warrant: warrant.map(Box::new),
    })
}

fn write_recall(recall: &RecallOrder) -> v1::RecallOrder {
    let to = recall.to.as_ref().map(|to| v1::Destination {
        session: write_session(to.session),
        name: to.name.to_string(),
        url: to.url.to_string(),
    });
    v1::RecallOrder { to }
}

fn read_recall(wire: v1::RecallOrder) -> Converted<RecallOrder> {
    Ok(RecallOrder { to: read_optional("to", wire.to, read_destination)? })
}

fn read_destination(wire: v1::Destination) -> Converted<Destination> {
    Ok(Destination {
        session: read_session("session", &wire.session)?,
        name: read_owner_name("name", &wire.name)?,
        url: read_url("url", &wire.url)?,
    })
}
