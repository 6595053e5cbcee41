//! Counts the visits of pages in the memory of a pool of servers: the first service of the guide.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use centrifuge::owner::BoxError;
use centrifuge::router::Refusal;
use centrifuge::{Key, LeasedMap, Lookup, Managers, NotOwner, Owner, Route, Router};
use tokio::net::TcpListener;

/// The state: a number for each page.
type Visits = LeasedMap<String, u64>;

#[tokio::main]
async fn main() {
    if let Err(error) = run().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run() -> Result<(), BoxError> {
    let managers = std::env::var("CENTRIFUGE_MANAGERS");
    let managers = Managers::list(managers.as_deref().unwrap_or("127.0.0.1:7600").split(','))?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", port] => serve(managers, port).await,
        ["visit", page] => visit(managers, page).await,
        _ => Err("say `visits server PORT` or `visits visit PAGE`".into()),
    }
}

/// A server: answers for the pages that it owns, until it is stopped.
async fn serve(managers: Managers, port: &str) -> Result<(), BoxError> {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let visits = Visits::new();
    // One client for all requests: it keeps its connections.
    let http = reqwest::Client::new();
    let carry = move |url, part| carry(http.clone(), url, part);
    let builder = Owner::builder(managers, "visits").url(&url).wait_for_name();
    let owner = builder.state(&visits, carry).join().await?;
    let routes = axum::Router::new()
        .route("/visits/{page}", post(count))
        .route("/transfer", post(take))
        .with_state((visits, owner.clone()));
    println!("serving at {url}; Ctrl-C moves everything away and ends");
    let leaving = async {
        tokio::signal::ctrl_c().await?;
        Ok::<(), BoxError>(owner.shutdown(Duration::from_secs(30)).await?)
    };
    tokio::select! {
        served = axum::serve(listener, routes) => Ok(served?),
        left = leaving => left,
    }
}

/// One more visit, if the page is ours.
async fn count(
    State((visits, _)): State<(Visits, Owner)>,
    Path(page): Path<String>,
) -> Result<String, StatusCode> {
    let not_ours = |_: NotOwner| StatusCode::MISDIRECTED_REQUEST;
    let counted = visits.with(&page, |slot| {
        let number = slot.unwrap_or(0) + 1;
        *slot = Some(number);
        number
    });
    let counted = counted.map_err(not_ours)?;
    visits.recheck(&counted).map_err(not_ours)?;
    Ok(counted.value.to_string())
}

/// Takes in a part of a range that moves here.
async fn take(State((visits, owner)): State<(Visits, Owner)>, part: Bytes) -> Vec<u8> {
    visits.handle(&owner, &part).await
}

/// Brings a part of a range that moves away to the server that gets it.
async fn carry(http: reqwest::Client, url: String, part: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let answer = http.post(format!("{url}/transfer")).body(part).send().await?;
    Ok(answer.error_for_status()?.bytes().await?.to_vec())
}

/// A caller: visits a page every half second, wherever its counter is, and says when it was lost.
async fn visit(managers: Managers, page: &str) -> Result<(), BoxError> {
    let (name, key) = (page.to_owned(), Key::of(page.as_bytes()));
    let lookup = Lookup::builder(managers, "visits")
        .on_loss(move |loss| {
            if loss.keys.contains(key) {
                println!("the visits of {name} were lost");
            }
            async {}
        })
        .connect()
        .await?;
    let (router, http) = (Router::new(lookup), reqwest::Client::new());
    loop {
        let visit = |route: Route| ask(&http, format!("{}/visits/{page}", route.url()));
        let number = router.send(key, visit).await?;
        println!("visit {number} of {page}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Asks one server once, and says how it went.
async fn ask(http: &reqwest::Client, url: String) -> Result<String, Refusal<reqwest::Error>> {
    let answer = http.post(url).send().await.map_err(Refusal::Unreachable)?;
    if answer.status() == reqwest::StatusCode::MISDIRECTED_REQUEST {
        return Err(Refusal::NotOwner);
    }
    let answer = answer.error_for_status().map_err(Refusal::Failed)?;
    answer.text().await.map_err(Refusal::Unreachable)
}
