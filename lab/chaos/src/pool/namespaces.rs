//! Network namespaces: one for the harness, which is the router of all others, and one for each process.
//!
//! The harness runs in a namespace of its own, so that what it sets up is gone with it. A cut is a rule of the router
//! that drops what one address sends to another, without a word to either: each direction is cut on its own. Only
//! `ip` is needed.

use std::io;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use super::addresses::{Addresses, Node, Part};
use crate::plan::Sizes;

/// The router's address, the same on every cable.
const ROUTER: &str = "169.254.1.1";
/// Where cuts stand among the router's rules: before the one that knows its own addresses, or what is sent to a link
/// would not be cut.
const CUTS: &str = "10";
/// Where that one is moved to.
const OWN_ADDRESSES: &str = "100";
/// How the names of our namespaces begin; the id of a harness follows.
const PREFIX: &str = "chaos";

/// The namespaces of a run; removed with it.
#[derive(Debug)]
pub(crate) struct Namespaces {
    id: u32,
}

impl Namespaces {
    /// Makes the harness's namespace. What a harness left behind that was killed is removed first.
    pub(crate) fn new(id: u32) -> io::Result<Namespaces> {
        sweep();
        let namespaces = Namespaces { id };
        ip(&["netns", "add", &namespaces.hub()])?;
        ip(&["-n", &namespaces.hub(), "link", "set", "lo", "up"])?;
        Ok(namespaces)
    }

    /// Whether this machine lets us.
    pub(crate) fn are_allowed(id: u32) -> bool {
        let Ok(trial) = Namespaces::new(id) else { return false };
        let rule = ["rule", "add", "from", "10.0.0.1", "to", "10.0.0.2", "blackhole"];
        let cable = ["link", "add", "trial", "type", "veth", "peer", "name", "other"];
        let in_hub = |arguments: &[&str]| ip(&[&["-n", &trial.hub()], arguments].concat());
        in_hub(&rule).is_ok() && in_hub(&cable).is_ok()
    }

    pub(crate) fn hub(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        remove(self.id);
    }
}

/// The namespace of a process.
pub(super) fn name_of(id: u32, node: Node) -> String {
    format!("{PREFIX}{id}-{node}")
}

/// Connects a namespace for every process to the one we are in, and makes this one the router.
pub(super) fn connect(id: u32, addresses: &Addresses, sizes: Sizes) -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    ip(&["rule", "add", "pref", OWN_ADDRESSES, "lookup", "local"])?;
    ip(&["rule", "del", "pref", "0"])?;
    let managers = (0..sizes.managers).map(|manager| addresses.stand_in(manager));
    for stand_in in managers.chain((0..sizes.peers).map(|peer| addresses.peer_stand_in(peer))) {
        ip(&["addr", "add", &stand_in.to_string(), "dev", "lo"])?;
    }
    for node in Node::all(sizes) {
        let (name, address, cable) = (name_of(id, node), addresses.of(node).to_string(), format!("v-{node}"));
        ip(&["netns", "add", &name])?;
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
        ip(&["addr", "add", &format!("{ROUTER}/32"), "dev", &cable])?;
        ip(&["link", "set", &cable, "up"])?;
        ip(&["route", "add", &address, "dev", &cable])?;
        let inside = |arguments: &[&str]| ip(&[&["-n", &name], arguments].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["addr", "add", &format!("{address}/32"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", ROUTER, "dev", "eth0", "scope", "link"])?;
        inside(&["route", "add", "default", "via", ROUTER, "dev", "eth0"])?;
    }
    let client = Node::all(sizes).into_iter().find(|node| matches!(node.part, Part::Owner | Part::Peer));
    let target = if sizes.managers > 0 { addresses.stand_in(0) } else { addresses.peer_stand_in(1) };
    client.map_or(Ok(()), |client| prove_cuts(addresses.of(client), target, &format!("v-{client}")))
}

/// Cuts a way to the router itself and asks the kernel what it would do with a packet: a cut that does not cut would
/// make a run easier than it says.
fn prove_cuts(from: IpAddr, to: IpAddr, cable: &str) -> io::Result<()> {
    let passes = || ip(&["route", "get", &to.to_string(), "from", &from.to_string(), "iif", cable]).is_ok();
    let before = passes();
    set_cut(from, to, true)?;
    let during = passes();
    set_cut(from, to, false)?;
    match (before, during, passes()) {
        (true, false, true) => Ok(()),
        seen => {
            Err(io::Error::other(format!("cuts do not cut here: before, during and after one: {seen:?}")))
        }
    }
}

/// Drops what one address sends to another from now on, or no longer.
pub(super) fn set_cut(from: IpAddr, to: IpAddr, is_cut: bool) -> io::Result<()> {
    let verb = if is_cut { "add" } else { "del" };
    ip(&["rule", verb, "pref", CUTS, "from", &from.to_string(), "to", &to.to_string(), "blackhole"])
}

/// Removes what belongs to harnesses that are gone.
fn sweep() {
    for id in names().iter().filter_map(|name| id_of(name)) {
        if !std::path::Path::new(&format!("/proc/{id}")).exists() {
            remove(id);
        }
    }
}

/// The namespaces of this machine; none if they cannot be listed.
fn names() -> Vec<String> {
    let listing = Command::new("ip").args(["netns", "list"]).stderr(Stdio::null()).output();
    let text =
        listing.map_or_else(|_| String::new(), |listing| String::from_utf8_lossy(&listing.stdout).into());
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The harness that a namespace belongs to.
fn id_of(line: &str) -> Option<u32> {
    let name = line.split_whitespace().next()?.strip_prefix(PREFIX)?;
    name.split('-').next()?.parse().ok()
}

fn remove(id: u32) {
    for name in names().iter().filter(|name| id_of(name) == Some(id)) {
        if let Err(error) = ip(&["netns", "del", name]) {
            eprintln!("a namespace stays behind: {error}");
        }
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("`ip {}`: {words}", arguments.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_namespaces_are_known_by_their_names() {
        assert_eq!(id_of("chaos123"), Some(123));
        assert_eq!(id_of("chaos123-owner-2 (id: 4)"), Some(123));
        assert_eq!(id_of("other"), None);
        assert_eq!(id_of("chaos-x"), None);
    }
}
