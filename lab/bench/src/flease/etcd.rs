//! The other side of the comparison: leases of an etcd with three nodes, by clients that talk to its leader.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use centrifuge_harness::EtcdNodes;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use self::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use self::rpc::kv_client::KvClient;
use self::rpc::lease_client::LeaseClient;
use self::rpc::maintenance_client::MaintenanceClient;
use crate::output::Rate;
use crate::process::start_etcd;
use crate::{Failure, Result};

/// The part of etcd's API that the store uses.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
mod rpc {
    tonic::include_proto!("etcdserverpb");
}

/// How many nodes it has.
pub(super) const NODES: usize = 3;
/// The clients share so many connections.
const CONNECTIONS: usize = 8;
/// How long its leases last, in seconds: none ends during the run.
const TTL: i64 = 600;

/// An etcd that runs; it ends when this is dropped.
pub(super) struct Etcd {
    // The nodes go before their folder.
    _nodes: EtcdNodes,
    _folder: TempDir,
    leader: Vec<Channel>,
    version: String,
    /// Every key is created once.
    next: Arc<AtomicUsize>,
}

impl Etcd {
    /// Starts the nodes with their data in a new folder in `dir`, or in the system's for such files.
    pub(super) async fn start(dir: Option<&Path>) -> Result<Etcd> {
        let (nodes, folder) = start_etcd(NODES, dir).await?;
        let (leader, version) = find_leader(&nodes).await?;
        let leader = (0..CONNECTIONS).map(|_| leader.connect_lazy()).collect();
        Ok(Etcd { _nodes: nodes, _folder: folder, leader, version, next: Arc::default() })
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// So many clients acquire, each as soon as it has, for some time. Gives the leases.
    pub(super) async fn acquire(
        &self,
        in_flight: usize,
        time: Duration,
        rate: &mut Rate,
    ) -> Result<Vec<i64>> {
        let since = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..in_flight {
            let (channel, next, until) = (self.channel(client), Arc::clone(&self.next), since + time);
            clients.spawn(async move {
                let mut acquired = Vec::new();
                while Instant::now() < until {
                    acquired.push(acquire_one(&channel, &next).await?);
                }
                Ok::<_, Failure>(acquired)
            });
        }
        let mut leases = Vec::new();
        while let Some(client) = clients.join_next().await {
            for (lease, took) in client?? {
                leases.push(lease);
                rate.note(took);
            }
        }
        rate.time += since.elapsed();
        Ok(leases)
    }

    /// One client acquires and gives back, for some time. The time of the releases does not count.
    pub(super) async fn cycle(&self, time: Duration, rate: &mut Rate) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let (lease, took) = acquire_one(&self.channel(0), &self.next).await?;
            rate.note(took);
            rate.time += took;
            self.release(&[lease]).await?;
        }
        Ok(())
    }

    /// Gives leases back, as fast as it goes.
    pub(super) async fn release(&self, leases: &[i64]) -> Result<()> {
        let mut clients = JoinSet::new();
        let each = leases.len().div_ceil(CONNECTIONS * CONNECTIONS).max(1);
        for (number, some) in leases.chunks(each).enumerate() {
            let (some, mut client) = (some.to_vec(), LeaseClient::new(self.channel(number)));
            clients.spawn(async move {
                for id in some {
                    client.lease_revoke(rpc::LeaseRevokeRequest { id }).await?;
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(client) = clients.join_next().await {
            client??;
        }
        Ok(())
    }

    /// Keeps leases alive, so many requests at a time, each answered before the next in its place.
    pub(super) async fn keep_alive(
        &self,
        leases: &[i64],
        in_flight: usize,
        time: Duration,
        rate: &mut Rate,
    ) -> Result<()> {
        let since = Instant::now();
        let streams = CONNECTIONS.min(in_flight);
        let mut clients = JoinSet::new();
        for stream in 0..streams {
            let own: Vec<i64> = leases.iter().copied().skip(stream).step_by(streams).collect();
            let depth = (in_flight / streams).min(own.len());
            clients.spawn(keep_until(self.channel(stream), own, depth, since + time));
        }
        while let Some(client) = clients.join_next().await {
            client??.into_iter().for_each(|took| rate.note(took));
        }
        rate.time += since.elapsed();
        Ok(())
    }

    fn channel(&self, client: usize) -> Channel {
        self.leader[client % self.leader.len()].clone()
    }
}

/// Where the leader is, and its version.
async fn find_leader(nodes: &EtcdNodes) -> Result<(Endpoint, String)> {
    for endpoint in nodes.endpoints() {
        let endpoint = Endpoint::from_shared(endpoint)?;
        let mut client = MaintenanceClient::new(endpoint.connect_lazy());
        let status = client.status(rpc::StatusRequest {}).await?.into_inner();
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            return Ok((endpoint, status.version));
        }
    }
    Err(Failure::from("no node of etcd says that it leads: try again"))
}

/// Grants a lease, then creates a key with it unless it exists.
async fn acquire_one(channel: &Channel, next: &AtomicUsize) -> Result<(i64, Duration)> {
    let key = format!("cell-{}", next.fetch_add(1, Ordering::Relaxed)).into_bytes();
    let since = Instant::now();
    let request = rpc::LeaseGrantRequest { ttl: TTL, id: 0 };
    let lease = LeaseClient::new(channel.clone()).lease_grant(request).await?.into_inner().id;
    let is_absent = rpc::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(0)),
    };
    let put = rpc::PutRequest { key, value: b"holder".to_vec(), lease };
    let put = rpc::RequestOp { request: Some(rpc::request_op::Request::RequestPut(put)) };
    let request = rpc::TxnRequest { compare: vec![is_absent], success: vec![put], failure: Vec::new() };
    let created = KvClient::new(channel.clone()).txn(request).await?.into_inner();
    if created.succeeded {
        Ok((lease, since.elapsed()))
    } else {
        Err(Failure::from("a key of this measurement was in etcd already"))
    }
}

/// Keeps `depth` requests under way on one stream, whose answers come in their order.
async fn keep_until(
    channel: Channel,
    leases: Vec<i64>,
    depth: usize,
    until: Instant,
) -> Result<Vec<Duration>> {
    let (requests, stream) = mpsc::channel(depth.max(1));
    let mut ids = leases.iter().copied().cycle();
    let mut ask = || {
        let request = ids.next().map(|id| rpc::LeaseKeepAliveRequest { id });
        // There is room: no more than `depth` are ever unanswered.
        request.map(|request| requests.try_send(request).map(|()| Instant::now())).transpose()
    };
    let mut asked = std::collections::VecDeque::new();
    for _ in 0..depth {
        asked.extend(ask()?);
    }
    // The first request is there before the call is awaited: a server in Go answers nothing before it.
    let mut client = LeaseClient::new(channel);
    let mut answers = client.lease_keep_alive(ReceiverStream::new(stream)).await?.into_inner();
    let mut times = Vec::new();
    while let Some(since) = asked.pop_front() {
        match answers.message().await? {
            Some(answer) if answer.ttl > 0 => times.push(since.elapsed()),
            _ => return Err(Failure::from("etcd lost a lease of this measurement")),
        }
        if Instant::now() < until {
            asked.extend(ask()?);
        }
    }
    Ok(times)
}
