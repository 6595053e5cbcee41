//! Bad input changes nothing, is counted, and yields a reason: overlapping ranges, leases of others or of nobody,
//! acknowledgments from the future, foreign nonces, terms and namespaces, counters at their end.

#[path = "scripts/mod.rs"]
mod stages;

use std::fmt::Debug;

use centrifuge_core::id::{Generation, Namespace};
use stages::lookup::LookupStage;
use stages::manager::ManagerStage;
use stages::owner::OwnerStage;
use stages::trace::{Around, Stage};

// ---- what a Manager is told

#[test]
fn manager_refuses_reports_with_overlapping_or_disordered_ranges() {
    let mut stage = pool();
    let mut refused = |report: &str, count: u64| {
        changes_nothing_but(
            &mut stage,
            report,
            &["skip message of a1: overlapping ranges", &format!("counted overlapping-ranges={count}")],
        );
    };
    refused("report a1 holds 00-7f gen=1 holds 7f-8f gen=1", 1);
    refused("report a1 holds 00-7f gen=1 holds 00-7f gen=1", 2);
    refused("report a1 holds 40-7f gen=1 holds 00-3f gen=1", 3);
}

#[test]
fn manager_refuses_acknowledgments_from_the_future() {
    let mut stage = pool();
    let mut refused = |report: &str, count: u64| {
        changes_nothing_but(
            &mut stage,
            report,
            &["skip message of a1: from the future", &format!("counted from-the-future={count}")],
        );
    };
    refused("report a1 heard=99 applied=1 holds 00-7f gen=1", 1);
    refused("report a1 heard=max applied=max", 2);
    refused("report a1 heard=3 applied=4", 3);
}

#[test]
fn manager_refuses_duplicates_and_stragglers() {
    let mut stage = pool();
    changes_nothing_but(
        &mut stage,
        "report a1 seq=2",
        &["skip message of a1: duplicate", "counted duplicate=1"],
    );
    changes_nothing_but(
        &mut stage,
        "report a1 seq=0 released 00-7f gen=1",
        &["skip message of a1: duplicate", "counted duplicate=2"],
    );
}

#[test]
fn manager_refuses_foreign_nonces() {
    let mut stage = pool();
    let mut refused = |report: &str, expected: &[&str]| changes_nothing_but(&mut stage, report, expected);
    refused("report a1 talk=n9", &["-> a1 unknown conversation n9", "counted foreign-nonce=1"]);
    refused("report a1 talk=n2", &["-> a1 unknown conversation n2", "counted foreign-nonce=2"]);
    refused("report x1 talk=n1", &["-> x1 unknown conversation n1", "counted foreign-nonce=3"]);
}

#[test]
fn manager_counts_and_answers_hellos_to_an_unknown_namespace() {
    let mut stage = pool();
    let expected = ["-> a1 refused: unknown namespace", "counted unknown-namespace=1"];
    changes_nothing_but(&mut stage, "hello a1 in=other", &expected);
}

#[test]
fn manager_gives_a_reason_for_reports_to_an_unknown_namespace() {
    let mut stage = pool();
    let expected = ["skip message of a1: unknown namespace", "counted unknown-namespace=1"];
    changes_nothing_but(&mut stage, "report a1 in=other seq=1 heard=0 holds 00-7f gen=1", &expected);
}

#[test]
fn manager_gives_a_reason_for_hellos_of_a_higher_term() {
    let mut stage = pool();
    let expected = ["-> c1 refused: stale term", "counted stale-term=1"];
    changes_nothing_but(&mut stage, "hello c1 term=2", &expected);
}

#[test]
fn manager_refuses_stale_or_lost_lookups() {
    let mut stage = pool();
    stage.play("ask l1").expect("a request");
    let mut refused = |request: &str, expected: &[&str]| changes_nothing_but(&mut stage, request, expected);
    refused("ask l1 seq=1", &["counted duplicate=1"]);
    refused("ask l2 term=2", &["counted stale-term=1"]);
    refused("ask l3 in=other", &["-> l3 unknown namespace", "counted unknown-namespace=1"]);
}

#[test]
fn claims_of_leases_that_were_never_granted_have_no_effect() {
    let honest = "report a1 holds 00-7f gen=1";
    // Of nobody, of another session, and of a number to come.
    for claim in ["holds 80-ff gen=7", "holds 80-ff gen=2", "holds 80-8f gen=max"] {
        is_as_good_as(
            &format!("{honest} {claim}"),
            honest,
            &["skip message of a1: not granted", "counted not-granted=1"],
        );
    }
}

#[test]
fn claims_of_more_keys_than_were_granted_have_no_effect() {
    is_as_good_as(
        "report a1 holds 00-8f gen=1",
        "report a1 holds 00-7f gen=1",
        &["skip message of a1: not granted", "counted not-granted=1"],
    );
}

#[test]
fn releases_and_refusals_of_leases_of_others_have_no_effect() {
    let honest = "report a1 holds 00-7f gen=1";
    for release in ["released 80-ff gen=2", "released 80-ff gen=2 to=a1", "released 00-ff gen=9"] {
        is_as_good_as(
            &format!("{honest} {release}"),
            honest,
            &["skip message of a1: not its lease", "counted not-its-lease=1"],
        );
    }
    // What a report both holds and releases is held; what is refused of another's lease stays there.
    for word in ["released 00-7f gen=1 to=b1", "refused 00-7f gen=1", "refused 80-ff gen=2"] {
        is_as_good_as(&format!("{honest} {word}"), honest, &[]);
    }
}

#[test]
fn a_report_with_the_last_number_counts_and_leaves_none_for_the_next() {
    let mut stage = pool();
    let lines = stage.play("report a1 seq=max holds 00-7f gen=1").expect("a report");
    assert!(lines[0].starts_with("-> a1 assign seq=4 heard=18446744073709551615"), "{lines:?}");
    changes_nothing_but(
        &mut stage,
        "report a1 seq=max",
        &["skip message of a1: duplicate", "counted duplicate=1"],
    );
    // Numbers begin anew with a new conversation, in which a1 keeps what it has.
    let lines = stage.play("join a1 holds 00-7f gen=1").expect("a new conversation");
    assert_eq!(lines[2], "     renew 00-7f gen=1", "{lines:?}");
}

#[test]
fn a_release_to_oneself_is_a_loss() {
    let mut stage = pool();
    let lines = stage.play("report a1 released 00-7f gen=1 to=a1").expect("a report");
    assert_eq!(lines[1], "     00-7f gen=1 is free: destination gone", "{lines:?}");
}

#[test]
fn a_first_report_that_cannot_count_takes_up_no_offer() {
    let mut stage = pool();
    stage.play("hello a1").expect("a hello");
    changes_nothing_but(
        &mut stage,
        "report a1 seq=1 heard=9",
        &["skip message of a1: from the future", "counted from-the-future=1"],
    );
    changes_nothing_but(
        &mut stage,
        "report a1 seq=1 heard=0 holds 00-7f gen=1 holds 00-7f gen=1",
        &["skip message of a1: overlapping ranges", "counted overlapping-ranges=1"],
    );
}

#[test]
fn no_more_owners_join_than_may() {
    let mut stage = ManagerStage::default();
    let commands = ["pool a1 max-owners=2", "hello b1", "hello c1", "report b1", "commit"];
    commands.iter().for_each(|command| drop(stage.play(command).expect("a command")));
    let lines = stage.play("report c1").expect("a report");
    assert!(!lines.iter().any(|line| line.contains("c1 starts")), "{lines:?}");
}

#[test]
fn an_evicted_process_does_not_come_back_by_an_earlier_offer() {
    let mut stage = pool();
    let commands =
        ["hello a1", "evict a", "commit", "report a1 talk=n1 seq=3 heard=4 released 00-7f gen=1", "commit"];
    let lines: Vec<_> = commands.iter().flat_map(|command| stage.play(command).expect("a command")).collect();
    assert!(lines.iter().any(|line| line.contains("a1 ends")), "{lines:?}");
    let lines = stage.play("report a1 talk=n3 seq=1 heard=0").expect("a report");
    assert!(!lines.iter().any(|line| line.contains("a1 starts")), "{lines:?}");
}

// ---- generations at their end

#[test]
fn without_generations_free_ranges_stay_free() {
    let mut stage = ManagerStage::default();
    let table = stage.play(&format!("pool a1 generations-used={}", u64::MAX - 1)).expect("a pool");
    assert_eq!(table[0], format!("00-ff a1 gen={}", u64::MAX));
    let all = |stage: &mut ManagerStage, commands: &[&str]| -> Vec<String> {
        commands.iter().flat_map(|command| stage.play(command).expect("a command")).collect()
    };
    // b1 joins and is to get the upper half. It gets no lease for it, and the state is lost.
    all(&mut stage, &["at 1s join b1", "commit", "accept a1"]);
    let lines =
        all(&mut stage, &["report a1 holds 00-7f gen=max released 80-ff gen=max to=b1", "commit", "table"]);
    assert!(lines.contains(&"skip grants: generations used up".to_owned()), "{lines:?}");
    assert!(lines.contains(&"counted losses=1".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("grant ")), "{lines:?}");
    let expected = [format!("00-7f a1 gen={}", u64::MAX), format!("80-ff nobody gen={}", u64::MAX)];
    assert_eq!(lines[lines.len() - 2..], expected);
    // Nor does anything that happens later bring a number back; what is held stays held.
    let lines = all(&mut stage, &["accept a1", "accept b1", "at 60s accept a1", "at 65s wake", "table"]);
    assert!(!lines.iter().any(|line| line.contains("grant ")), "{lines:?}");
    let name = Namespace::new("pool").expect("a name");
    let group = stage.machine().expect("a Manager").group().expect("a leader").clone();
    assert_eq!(group.namespaces[&name].last_generation, Generation(u64::MAX));
    assert_eq!(group.namespaces[&name].table.len(), 2);
}

// ---- what an Owner is told

#[test]
fn owner_refuses_malformed_messages() {
    let mut stage = owner();
    let mut refused = |message: &str, count: u64| {
        changes_nothing_but(&mut stage, message, &[&format!("counted malformed={count}")]);
    };
    refused("assign renew 00-7f gen=5 grant 7f-ff gen=6", 1);
    refused("assign renew 00-7f gen=5 renew 00-7f gen=5", 2);
    refused("assign grant 80-ff gen=6 renew 00-7f gen=5", 3);
    refused("assign heard=9 applied=1 renew 00-7f gen=5", 4);
    refused("assign heard=max applied=1", 5);
}

#[test]
fn owner_refuses_messages_that_applied_what_they_have_not_heard() {
    let mut stage = owner();
    changes_nothing_but(&mut stage, "assign heard=1 applied=2 renew 00-7f gen=5", &["counted malformed=1"]);
}

#[test]
fn owner_refuses_messages_for_others() {
    let mut stage = owner();
    let mut refused = |message: &str, count: u64| {
        changes_nothing_but(&mut stage, message, &[&format!("counted foreign={count}")]);
    };
    refused("assign in=other", 1);
    refused("assign session=o9", 2);
    refused("assign talk=n9", 3);
    refused("welcome n9 term=9", 4);
    refused("welcome n9 term=9 hello=0", 5);
}

#[test]
fn owner_refuses_lower_terms_and_stragglers() {
    let mut stage = owner();
    changes_nothing_but(&mut stage, "assign term=0", &["counted stale-terms=1"]);
    changes_nothing_but(&mut stage, "assign seq=1", &["counted duplicates=1"]);
    changes_nothing_but(&mut stage, "assign seq=0", &["counted duplicates=2"]);
}

#[test]
fn owner_takes_a_message_with_the_last_number_and_none_after_it() {
    let mut stage = owner();
    assert_eq!(stage.play("assign seq=max renew 00-7f gen=5"), Ok(Vec::new()));
    changes_nothing_but(&mut stage, "assign seq=max", &["counted duplicates=1"]);
    changes_nothing_but(&mut stage, "assign seq=3", &["counted duplicates=2"]);
}

#[test]
fn owner_ignores_what_is_said_of_transfers_that_it_did_not_begin() {
    let mut stage = owner();
    for word in ["ready t1", "done t1 by=o2", "failed t1", "quiesced t1"] {
        changes_nothing_but(&mut stage, word, &[]);
    }
    // A transfer in another stage is no better.
    stage.play("assign renew 00-7f gen=5 recall to=o2").expect("a recall");
    for word in ["done t1 by=o2", "quiesced t1", "ready t2"] {
        changes_nothing_but(&mut stage, word, &[]);
    }
}

// ---- what a Lookup is told

#[test]
fn lookup_refuses_snapshots_that_are_no_table() {
    let mut stage = lookup();
    let mut refused = |message: &str, count: u64| {
        changes_nothing_but(&mut stage, message, &[&format!("counted bad-snapshot={count}")]);
    };
    refused("snapshot lsn=2", 1);
    refused("snapshot lsn=2 row 00-7f b1 gen=2", 2);
    refused("snapshot lsn=2 row 01-ff b1 gen=2", 3);
    refused("snapshot lsn=2 row 00-3f b1 gen=2 row 80-ff b1 gen=2", 4);
    refused("snapshot lsn=2 row 00-80 b1 gen=2 row 80-ff b1 gen=2", 5);
    refused("snapshot lsn=2 row 80-ff b1 gen=2 row 00-7f b1 gen=2", 6);
    refused("snapshot lsn=2 row 00-ff b1 gen=0", 7);
    refused("snapshot lsn=2 row 00-ff b1 gen=2 since=3", 8);
}

#[test]
fn lookup_refuses_changes_that_change_nothing_or_cannot_be() {
    let mut stage = lookup();
    let mut refused = |message: &str, count: u64| {
        changes_nothing_but(&mut stage, message, &[&format!("counted bad-changes={count}")]);
    };
    refused("changes after=1 lsn=2", 1);
    refused("changes after=1 lsn=1 row 00-7f b1 gen=2", 2);
    refused("changes after=2 lsn=1 row 00-7f b1 gen=2", 3);
    refused("changes after=1 lsn=2 row 00-7f b1 gen=2 since=3", 4);
    refused("changes after=1 lsn=2 row 00-7f b1 gen=0", 5);
}

#[test]
fn lookup_refuses_messages_for_others_and_of_others() {
    let mut stage = lookup();
    let news = "after=1 lsn=2 row 00-7f b1 gen=2";
    let mut refused = |word: &str, counted: &str| {
        changes_nothing_but(&mut stage, &format!("changes {word} {news}"), &[counted]);
    };
    refused("echo=9", "counted never-sent=1");
    refused("echo=max", "counted never-sent=2");
    refused("echo=0", "counted never-sent=3");
    refused("for=l9", "counted other-lookup=1");
    refused("in=other", "counted other-namespace=1");
    refused("term=0", "counted lower-term=1");
    refused("from=m9", "counted unknown-manager=1");
    refused("log=g9", "counted left-log=1");
}

#[test]
fn changes_of_another_log_are_not_applied_but_asked_about() {
    let mut stage = lookup();
    stage.play("wake").expect("a poll");
    let table = stage.machine().expect("a Lookup").table().cloned();
    let lines = stage.play("at 31s changes log=g9 after=1 lsn=2 row 00-7f b1 gen=2").expect("changes");
    assert_eq!(lines, ["-> m1 ask seq=3 has g1:1, term 1", "counted gaps=1", "wake at 36s"]);
    assert_eq!(stage.machine().expect("a Lookup").table().cloned(), table);
}

// ---- how it is judged

/// A leader of one namespace, in which a1 and b1 hold a half each.
fn pool() -> ManagerStage {
    let mut stage = ManagerStage::default();
    let lines = stage.play("pool a1 b1").expect("a pool");
    assert_eq!(lines[..2], ["00-7f a1 gen=1", "80-ff b1 gen=2 since=1"]);
    stage
}

/// An Owner that holds one lease.
fn owner() -> OwnerStage {
    let mut stage = OwnerStage::default();
    stage.play("owner o1 holds 00-7f gen=5").expect("an Owner");
    stage
}

/// A Lookup with a table.
fn lookup() -> LookupStage {
    let mut stage = LookupStage::default();
    stage.play("lookup l1 row 00-ff a1 gen=1").expect("a Lookup");
    stage
}

/// Feeds one input and sees that it led to these lines alone, and left the machine as it was but for its counters.
fn changes_nothing_but<S>(stage: &mut S, input: &str, expected: &[&str])
where
    S: Stage + Around<Machine: Debug>,
{
    let before = without_counters(stage.machine().expect("a machine"));
    let lines = stage.play(input).unwrap_or_else(|error| panic!("{input}: {error}"));
    assert_eq!(lines, expected, "{input}");
    let after = without_counters(stage.machine().expect("a machine"));
    if let Some(difference) = first_difference(&before, &after) {
        panic!("{input} changed {difference}");
    }
}

/// Feeds a report that is wrong in part: the rest of it counts, as if the wrong part had not been there.
fn is_as_good_as(input: &str, honest: &str, expected: &[&str]) {
    let (mut stage, mut twin) = (pool(), pool());
    let mut lines = stage.play(input).unwrap_or_else(|error| panic!("{input}: {error}"));
    let odd: Vec<String> = lines.extract_if(.., |line| expected.contains(&line.as_str())).collect();
    assert_eq!(odd, expected, "{input} led to {lines:?}");
    assert_eq!(lines, twin.play(honest).expect("a report"), "{input}");
    let group = stage.machine().expect("a Manager").group().cloned();
    assert_eq!(group, twin.machine().expect("a Manager").group().cloned(), "{input}");
}

/// Where two texts begin to differ, with a few of the words before.
fn first_difference(before: &str, after: &str) -> Option<String> {
    let (before, after): (Vec<_>, Vec<_>) = (before.split(' ').collect(), after.split(' ').collect());
    let words = before.len().max(after.len());
    let place = (0..words).find(|place| before.get(*place) != after.get(*place))?;
    let around = |text: &[&str]| text[place.saturating_sub(8)..(place + 8).min(text.len())].join(" ");
    Some(format!("`{}` to `{}`", around(&before), around(&after)))
}

/// A machine's state as text, up to its counters, which every machine has last.
fn without_counters(machine: &impl Debug) -> String {
    let text = format!("{machine:?}");
    let (state, counters) = text.rsplit_once(" counters: ").expect("a machine counts");
    assert!(counters.ends_with("} }"), "the counters are not last: {counters}");
    state.to_owned()
}
