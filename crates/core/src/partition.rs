//! Partitioners: which Owner each key should belong to, given the Owners that live.
//!
//! A partitioner is a pure function of its input and the Manager's only source of wishes; leases, recalls and
//! migrations follow from the difference between the wish and the table (Centrifuge §2.1.2, PRS §4.1).

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::id::OwnerName;
use crate::key::{Key, KeyRange};
use crate::range_set::RangeSet;

/// One Owner as the partitioner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionOwner {
    /// The name from which the Owner's positions derive. No two Owners of one input share it.
    pub name: OwnerName,
    /// The Owner's virtual nodes before its weight is applied; 0 leaves it without keys.
    pub virtual_nodes: u32,
    /// The Owner's capacity in percent of a normal Owner's; 0 leaves it without keys.
    pub weight: u32,
}

/// The desired assignment: ranges in key order that cover every key, each with its Owner's place in the input.
///
/// Neighbours with the same Owner are one range. Empty if no Owner can have keys.
pub type Assignment = Vec<(KeyRange, usize)>;

/// A way to divide the key space among Owners.
///
/// The same Owners give the same assignment, whatever their order in the input.
pub trait Partitioner {
    /// Divides the key space among `owners`.
    fn assign(&self, owners: &[PartitionOwner]) -> Assignment;
}

/// The partitioners that a namespace can be configured with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PartitionerKind {
    /// [`ConsistentHash`], the default.
    ConsistentHash,
    /// [`Fixed`].
    Fixed,
    /// The table that stands, changed by as much as load asks for; see [`trim`](crate::trim).
    Trim,
}

impl PartitionerKind {
    /// The partitioner of this kind; `None` where the table itself is the assignment.
    #[must_use]
    pub fn partitioner(self) -> Option<&'static dyn Partitioner> {
        match self {
            PartitionerKind::ConsistentHash => Some(&ConsistentHash),
            PartitionerKind::Fixed => Some(&Fixed),
            PartitionerKind::Trim => None,
        }
    }
}

/// The most nodes that one Owner has on a ring, whatever its weight: a change of one Owner is decided in one piece.
const MOST_RING_NODES: u32 = 8_192;

/// Consistent hashing with virtual nodes (Centrifuge §2.1.2, PRS §4.1).
///
/// The contract, which no later version may change without moving keys:
///
/// - Virtual node `i` of an Owner stands at the XXH3-64 (seed 0) of the bytes of the Owner's name, one zero byte, and
///   `i` as four little-endian bytes; see [`ConsistentHash::position`].
/// - An Owner has `virtual_nodes * weight / 100` nodes, rounded down but at least one, and at most [`MOST_RING_NODES`]; none if
///   either number is 0.
///   The nodes are numbered from 0, so a change of the count adds or removes the highest numbers only.
/// - A node owns the keys from the one after the node below it up to its own position. The lowest node also owns the
///   keys above the highest one.
/// - Of nodes at the same position the first by Owner name, then by number, has the keys; the others have none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConsistentHash;

impl ConsistentHash {
    /// Where virtual node `index` of the Owner called `name` stands.
    #[must_use]
    pub fn position(name: &OwnerName, index: u32) -> Key {
        let mut bytes = position_bytes(name);
        Key(hash_with_index(&mut bytes, index))
    }
}

impl Partitioner for ConsistentHash {
    fn assign(&self, owners: &[PartitionOwner]) -> Assignment {
        let order = by_name(owners);
        let mut nodes = positions(owners, &order);
        nodes.sort_unstable();
        ranges_between(&nodes, &order)
    }
}

/// The ring of [`ConsistentHash`], kept while Owners come and go: a change costs what it moves, not what there is.
///
/// It gives each key to whom an assignment of the same Owners gives it. Owners have identities of any kind, by which they are
/// told apart if they share a name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ring<O> {
    nodes: BTreeMap<Key, Vec<(OwnerName, O)>>,
}

impl<O: Copy + Ord> Ring<O> {
    /// A ring without nodes.
    #[must_use]
    pub fn new() -> Ring<O> {
        Ring { nodes: BTreeMap::new() }
    }

    /// Puts the nodes of an Owner on the ring.
    pub fn add(&mut self, owner: &PartitionOwner, id: O) {
        for position in positions_of(owner) {
            let here = self.nodes.entry(position).or_default();
            let place = here.partition_point(|(name, other)| (name, other) < (&owner.name, &id));
            here.insert(place, (owner.name.clone(), id));
        }
    }

    /// Takes the nodes of an Owner off the ring, which were put there when it was as it is here.
    pub fn remove(&mut self, owner: &PartitionOwner, id: O) {
        for position in positions_of(owner) {
            let Some(here) = self.nodes.get_mut(&position) else { continue };
            if let Some(place) = here.iter().position(|(name, other)| *name == owner.name && *other == id) {
                here.remove(place);
            }
            if here.is_empty() {
                self.nodes.remove(&position);
            }
        }
    }

    /// The keys that have another Owner, or may have, since these were added or removed.
    #[must_use]
    pub fn around<'a>(&self, owners: impl IntoIterator<Item = &'a PartitionOwner>) -> RangeSet {
        let below = |key: Key| self.nodes.range(..key).next_back().and_then(|(position, _)| position.next());
        let up_to = |position: Key| KeyRange::new(below(position).unwrap_or(Key::MIN), position);
        // The keys above the highest node are the lowest one's, which may be another now.
        let seam = match self.nodes.last_key_value() {
            Some((highest, _)) => highest.next().and_then(|first| KeyRange::new(first, Key::MAX)),
            None => Some(KeyRange::ALL),
        };
        let nodes = owners.into_iter().flat_map(positions_of).filter_map(up_to);
        let mut around: Vec<KeyRange> = nodes.chain(seam).collect();
        around.sort_unstable();
        around.into_iter().collect()
    }

    /// The Owners of the keys of `range`, in key order; nothing if the ring is empty.
    pub fn pieces(&self, range: KeyRange) -> impl Iterator<Item = (KeyRange, O)> {
        let lowest = self.nodes.values().next();
        let seam = lowest.map(|here| (Key::MAX, here));
        let nodes = self.nodes.range(range.first()..).map(|(position, here)| (*position, here));
        let mut next = Some(range.first());
        nodes.chain(seam).map_while(move |(position, here)| {
            let first = next.filter(|first| *first <= range.last())?;
            let piece = KeyRange::new(first, position.min(range.last()))?;
            next = piece.last().next();
            Some((piece, here.first()?.1))
        })
    }
}

impl<O: Copy + Ord> Default for Ring<O> {
    fn default() -> Ring<O> {
        Ring::new()
    }
}

/// Where the nodes of an Owner stand.
fn positions_of(owner: &PartitionOwner) -> impl Iterator<Item = Key> + use<> {
    let mut bytes = position_bytes(&owner.name);
    (0..ring_nodes(owner)).map(move |index| Key(hash_with_index(&mut bytes, index)))
}

/// Equal slices of the key space in the order of the Owners' names: for tests and static pools.
///
/// Weights and virtual nodes are ignored; a change of membership moves keys between all Owners.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fixed;

impl Partitioner for Fixed {
    fn assign(&self, owners: &[PartitionOwner]) -> Assignment {
        let count = owners.len() as u128;
        let slice_start = |slice: usize| ((slice as u128) << 64) / count;
        let slice_of = |(slice, owner): (usize, usize)| {
            let last = slice_start(slice + 1) - 1;
            let range = KeyRange::new(Key(slice_start(slice) as u64), Key(last as u64));
            range.map(|range| (range, owner))
        };
        by_name(owners).into_iter().enumerate().filter_map(slice_of).collect()
    }
}

/// The parts of the key space in which both assignments are constant, in key order, with the Owner in each.
///
/// Where the two numbers name different Owners, the part moves. Both assignments cover every key, or the result ends
/// with the shorter one.
pub fn overlay<'a>(
    before: &'a [(KeyRange, usize)],
    after: &'a [(KeyRange, usize)],
) -> impl Iterator<Item = (KeyRange, usize, usize)> + 'a {
    let (mut left, mut right) = (0, 0);
    std::iter::from_fn(move || {
        let (&(old, from), &(new, to)) = (before.get(left)?, after.get(right)?);
        left += usize::from(old.last() <= new.last());
        right += usize::from(new.last() <= old.last());
        Some((old.intersection(new)?, from, to))
    })
}

/// How many virtual nodes the Owner has on the ring.
fn ring_nodes(owner: &PartitionOwner) -> u32 {
    if owner.virtual_nodes == 0 || owner.weight == 0 {
        return 0;
    }
    let weighted = u64::from(owner.virtual_nodes) * u64::from(owner.weight) / 100;
    u32::try_from(weighted.max(1)).unwrap_or(u32::MAX).min(MOST_RING_NODES)
}

/// The Owners' places in the input, in the order of their names.
fn by_name(owners: &[PartitionOwner]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..owners.len()).collect();
    order.sort_by(|&a, &b| owners[a].name.cmp(&owners[b].name));
    order
}

/// A virtual node as one number that sorts as the contract wants: position first, then the rank of its Owner's name.
///
/// One wide integer compares without a branch, which a pair does not; the sort is most of the cost of an assignment.
type Node = u128;

fn node(position: u64, rank: usize) -> Node {
    u128::from(position) << 64 | rank as u128
}

fn node_position(node: Node) -> u64 {
    (node >> 64) as u64
}

fn node_rank(node: Node) -> usize {
    node as u64 as usize
}

/// Every virtual node of every Owner, not yet sorted.
fn positions(owners: &[PartitionOwner], order: &[usize]) -> Vec<Node> {
    let count = owners.iter().map(|owner| ring_nodes(owner) as usize).sum();
    let mut nodes = Vec::with_capacity(count);
    for (rank, &place) in order.iter().enumerate() {
        let mut bytes = position_bytes(&owners[place].name);
        let indexes = 0..ring_nodes(&owners[place]);
        nodes.extend(indexes.map(|index| node(hash_with_index(&mut bytes, index), rank)));
    }
    nodes
}

/// What is hashed for a position, with room for the index at the end.
fn position_bytes(name: &OwnerName) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.as_str().len() + 5);
    bytes.extend_from_slice(name.as_str().as_bytes());
    bytes.extend_from_slice(&[0; 5]);
    bytes
}

fn hash_with_index(bytes: &mut [u8], index: u32) -> u64 {
    let index_at = bytes.len() - 4;
    bytes[index_at..].copy_from_slice(&index.to_le_bytes());
    xxh3_64(bytes)
}

/// The ranges that end at the given sorted nodes, and the one above them, which wraps to the lowest node.
fn ranges_between(nodes: &[Node], order: &[usize]) -> Assignment {
    let Some(&lowest) = nodes.first() else { return Assignment::new() };
    let mut assignment = Assignment::with_capacity(nodes.len() + 1);
    let mut next = Some(Key::MIN);
    let seam = node(u64::MAX, node_rank(lowest));
    // The seam sorts as if it stood last: a real node at the highest key leaves nothing for it.
    for &node in nodes.iter().chain(std::iter::once(&seam)) {
        let Some(first) = next else { break };
        let last = Key(node_position(node));
        if let Some(range) = KeyRange::new(first, last) {
            append(&mut assignment, range, order[node_rank(node)]);
            next = last.next();
        }
    }
    assignment
}

/// Adds the next range, as a longer last one if that has the same Owner.
fn append(assignment: &mut Assignment, range: KeyRange, owner: usize) {
    if let Some((previous, same)) = assignment.last_mut()
        && *same == owner
        && let Some(joined) = KeyRange::new(previous.first(), range.last())
    {
        *previous = joined;
        return;
    }
    assignment.push((range, owner));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("a range")
    }

    #[test]
    fn of_two_nodes_at_one_position_the_first_by_name_has_the_keys() {
        let nodes = [node(5, 0), node(5, 1), node(9, 1)];
        let expected = [(range(0, 5), 7), (range(6, 9), 3), (range(10, u64::MAX), 7)];
        assert_eq!(ranges_between(&nodes, &[7, 3]), expected);
    }

    #[test]
    fn a_node_at_the_highest_key_leaves_nothing_to_wrap() {
        let nodes = [node(5, 0), node(u64::MAX, 1)];
        assert_eq!(ranges_between(&nodes, &[0, 1]), [(range(0, 5), 0), (range(6, u64::MAX), 1)]);
    }

    #[test]
    fn a_node_at_the_lowest_key_owns_that_key_and_the_seam() {
        let nodes = [node(0, 0), node(5, 1)];
        let expected = [(range(0, 0), 0), (range(1, 5), 1), (range(6, u64::MAX), 0)];
        assert_eq!(ranges_between(&nodes, &[0, 1]), expected);
    }
}
