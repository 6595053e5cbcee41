//! Commits, one after the other, by an operator who turns to another Manager when one does not answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::id::Term;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::{Change, Record};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_server::RunningManager;
use centrifuge_server::store::{Contents, EtcdOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use crate::etcd_support::backend;
use crate::support::{self, within};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// Between two requests, so that others get something done.
const PAUSE: Duration = Duration::from_millis(30);

/// Creates namespaces until it is told to stop. Each has a name of its own: none is created twice on purpose.
pub(crate) struct Load {
    /// Those whose creation was answered well.
    created: watch::Receiver<Vec<String>>,
    stop: watch::Sender<bool>,
    working: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start<'a>(managers: impl IntoIterator<Item = &'a RunningManager>) -> Load {
        let managers = managers.into_iter().map(RunningManager::grpc_addr).collect();
        let (show, created) = watch::channel(Vec::new());
        let (stop, mut stopped) = watch::channel(false);
        let working = tokio::spawn(async move {
            tokio::select! {
                () = work(managers, show) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        });
        Load { created, stop, working }
    }

    /// Waits until so many more have been created.
    pub(crate) async fn goes_on(&self, more: usize) {
        let mut created = self.created.clone();
        let enough = created.borrow().len() + more;
        within(created.wait_for(|created| created.len() >= enough)).await.expect("it works");
    }

    /// Ends it, and checks that what was answered is in the store once, and that the store is whole.
    pub(crate) async fn end(self, options: &EtcdOptions) {
        self.stop.send_replace(true);
        self.working.await.expect("no panic");
        let contents = contents(options).await;
        assert_whole(&contents);
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        creations(&contents).for_each(|name| *times.entry(name).or_default() += 1);
        for (name, times) in &times {
            assert_eq!(*times, 1, "{name} was created {times} times");
        }
        let created = self.created.borrow();
        for name in created.iter() {
            assert!(times.contains_key(name), "the creation of {name} was answered and is lost");
        }
        println!("{} creations answered, {} in the log", created.len(), times.len());
    }
}

/// Everything in the store, also while Managers use it.
pub(crate) async fn contents(options: &EtcdOptions) -> Contents {
    let store = backend(options);
    tokio::task::spawn_blocking(move || store.copy()).await.expect("no panic").expect("readable")
}

/// The names in all records that create a namespace, in the order of the log.
pub(crate) fn creations(contents: &Contents) -> impl Iterator<Item = String> {
    let records = contents.history.iter().flat_map(|stored| &stored.batch.records);
    records.filter_map(|record| match record {
        Record::Namespace { namespace, change: Change::Created { .. }, .. } => Some(namespace.to_string()),
        _ => None,
    })
}

/// The log has no hole, no term writes after a later one, and all of it adds up to the table.
pub(crate) fn assert_whole(contents: &Contents) {
    let indexes = contents.history.iter().map(|stored| stored.index.0);
    assert!(indexes.eq(1..=contents.index.0), "the log has a hole");
    let terms: Vec<Term> = contents.history.iter().map(|stored| stored.batch.term).collect();
    assert!(terms.is_sorted(), "an earlier term wrote after a later one: {terms:?}");
    let mut group = ManagerState::default();
    for stored in &contents.history {
        group.apply(&stored.batch);
    }
    assert_eq!(group, contents.group);
}

async fn work(managers: Vec<SocketAddr>, show: watch::Sender<Vec<String>>) {
    let mut asked = managers.iter().cycle();
    let mut admin = None;
    for number in 0.. {
        let name = format!("load-{number}");
        if admin.is_none() {
            admin = connect(*asked.next().expect("a Manager")).await;
        }
        if let Some(leader) = &mut admin {
            if is_created(leader, &name).await {
                show.send_modify(|created| created.push(name));
            } else {
                // Whatever became of it: another Manager, and another name.
                admin = None;
            }
        }
        sleep(PAUSE).await;
    }
}

async fn connect(at: SocketAddr) -> Option<AdminClient<Channel>> {
    support::channel(at).await.ok().map(AdminClient::new)
}

async fn is_created(admin: &mut AdminClient<Channel>, name: &str) -> bool {
    let request = v1::CreateNamespaceRequest { namespace: name.to_owned(), settings: None, kind: None };
    matches!(timeout(REQUEST, admin.create_namespace(request)).await, Ok(Ok(_)))
}
