//! Periodic tasks, in processes.

use std::collections::{BTreeMap, BTreeSet};

use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::Pool;
use centrifuge_examples::tasks::ledger::{Event, Run, What};
use centrifuge_harness::managers::until;
use centrifuge_harness::{Cluster, Service};

use crate::cluster::cluster;
use crate::support::LossRecorder;

const TASKS: usize = 12;

async fn serve(
    cluster: &Cluster,
    sink: &Service,
    name: &str,
    (period, work): (&str, &str),
) -> Result<Service, Failure> {
    let count = TASKS.to_string();
    let more = ["--sink", sink.address(), "--count", &count, "--period", period, "--work", work];
    cluster.serve("tasks server", name, &more).await
}

/// What the sink has noted, once it is sure that it never had two runs of a task open and took no period twice.
async fn events(sink: &Service) -> Result<Vec<Event>, Failure> {
    let events: Vec<Event> = reqwest::get(format!("{}/runs", sink.address())).await?.json().await?;
    let mut open: BTreeMap<&str, &Run> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for Event { task, run, what, .. } in &events {
        match what {
            What::Begun => assert_eq!(open.insert(task, run), None, "two runs of {task} at once"),
            What::Ended | What::Closed => assert_eq!(open.remove(task.as_str()), Some(run), "{task}"),
        }
        if *what == What::Ended {
            assert!(ended.insert((task, run.period)), "{task} ran twice for period {}", run.period);
        }
    }
    Ok(events)
}

/// How many tasks have finished a period.
fn finished(events: &[Event], period: u64) -> usize {
    events.iter().filter(|event| event.what == What::Ended && event.run.period == period).count()
}

fn latest(events: &[Event]) -> u64 {
    events.iter().map(|event| event.run.period).max().unwrap_or_default()
}

/// Waits until every task has finished a period that has not begun yet.
async fn goes_on(sink: &Service) -> Result<(), Failure> {
    let from = latest(&events(sink).await?) + 1;
    let gone_on = until("every task runs in one more period", async || {
        let events = events(sink).await?;
        Ok((from..=latest(&events)).any(|period| finished(&events, period) == TASKS))
    });
    match gone_on.await {
        Ok(()) => Ok(()),
        Err(late) => Err(format!("{late}, from {from} on; {}", last_of_each(&events(sink).await?)).into()),
    }
}

/// What became of each task in the end.
fn last_of_each(events: &[Event]) -> String {
    let last: BTreeMap<&str, &Event> = events.iter().map(|event| (event.task.as_str(), event)).collect();
    let each = last
        .values()
        .map(|event| format!("{} {:?} {} at {}", event.task, event.what, event.run.period, event.server));
    each.collect::<Vec<_>>().join(", ")
}

/// What a server runs, and the last period that each of it finished.
async fn own(server: &Service) -> Result<BTreeMap<String, Option<u64>>, Failure> {
    Ok(reqwest::get(format!("{}/tasks", server.address())).await?.json().await?)
}

/// What servers run, once each task has its server: a grant may still be on its way when the Manager has committed it.
async fn shared_out(servers: &[&Service]) -> Result<BTreeMap<String, Option<u64>>, Failure> {
    let mut all = BTreeMap::new();
    until("each task has its server", async || {
        all.clear();
        let mut here = 0;
        for server in servers {
            let own = own(server).await?;
            here += own.len();
            all.extend(own);
        }
        Ok(here == TASKS && all.len() == TASKS)
    })
    .await?;
    Ok(all)
}

/// Waits until a run of a server is open.
async fn until_it_works(sink: &Service, server: &Service) -> Result<(), Failure> {
    until("it is in the middle of a run", async || {
        let events = events(sink).await?;
        let begun = events.iter().rev().find(|event| event.server == server.name());
        Ok(begun.is_some_and(|begun| {
            let of_it = |event: &&Event| event.task == begun.task && event.run == begun.run;
            events.iter().filter(of_it).count() == 1
        }))
    })
    .await
}

/// PRS §3.4.
#[tokio::test]
async fn while_nobody_comes_or_goes_every_period_has_one_run() -> Result<(), Failure> {
    let cluster = cluster(&["tasks"]).await?;
    let sink = cluster.run("tasks sink", "sink", &[]).await?;
    let mut servers = Vec::new();
    for name in ["a", "b", "c"] {
        servers.push(serve(&cluster, &sink, name, ("3s", "100ms")).await?);
    }
    cluster.at_rest("tasks", 3).await?;
    shared_out(&servers.iter().collect::<Vec<_>>()).await?;

    let from = latest(&events(&sink).await?) + 2;
    until("three periods pass", async || Ok(latest(&events(&sink).await?) > from + 2)).await?;
    let events = events(&sink).await?;
    for period in from..from + 3 {
        let of_period = |what| events.iter().filter(move |it| it.run.period == period && it.what == what);
        let names: BTreeSet<_> = of_period(What::Ended).map(|event| &event.task).collect();
        assert_eq!(names.len(), TASKS, "every task, period {period}");
        assert_eq!(of_period(What::Begun).count(), TASKS, "each once, period {period}");
        let at: BTreeSet<_> = of_period(What::Ended).map(|event| &event.server).collect();
        assert_eq!(at.len(), 3, "at every server");
    }
    Ok(())
}

#[tokio::test]
async fn whoever_comes_and_goes_no_period_runs_twice_and_periods_go_on() -> Result<(), Failure> {
    let cluster = cluster(&["tasks"]).await?;
    let sink = cluster.run("tasks sink", "sink", &[]).await?;
    let times = ("2s", "1s");
    let first = serve(&cluster, &sink, "first", times).await?;
    cluster.at_rest("tasks", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "tasks").await?;
    let losses = LossRecorder::new(&pool);
    goes_on(&sink).await?;

    let second = serve(&cluster, &sink, "second", times).await?;
    cluster.at_rest("tasks", 2).await?;
    let before = shared_out(&[&first, &second]).await?;
    first.stop().await?;
    cluster.at_rest("tasks", 1).await?;
    let after = shared_out(&[&second]).await?;
    for (task, period) in before {
        assert!(after[&task] >= period && period.is_some(), "{task} was moved with its state: {after:?}");
    }
    assert_eq!(losses.take(), [], "what moved is not lost");
    goes_on(&sink).await?;

    let third = serve(&cluster, &sink, "third", times).await?;
    cluster.at_rest("tasks", 2).await?;
    until_it_works(&sink, &second).await?;
    second.kill().await?;
    cluster.at_rest("tasks", 1).await?;
    until("callers would be told", async || Ok(!losses.take().is_empty())).await?;
    goes_on(&sink).await?;

    until_it_works(&sink, &third).await?;
    third.pause().await?;
    let fourth = serve(&cluster, &sink, "fourth", times).await?;
    cluster.at_rest("tasks", 1).await?;
    goes_on(&sink).await?;
    third.resume()?;
    cluster.at_rest("tasks", 2).await?;
    goes_on(&sink).await?;
    let events = events(&sink).await?;
    assert!(events.iter().any(|event| event.what == What::Closed && event.server == "fourth"));
    drop(fourth);
    Ok(())
}
