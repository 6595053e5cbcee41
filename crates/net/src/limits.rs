//! The limits on what crosses the network, in one place: what a peer can grow is bounded before it is looked at.

use std::time::Duration;

use centrifuge_core::settings::Settings;

/// The longest message that a Manager receives, in bytes. A report has some 60 bytes for each range that an Owner holds, so this
/// is room for more than 50,000 ranges of one Owner; for 30,000 with warrants, where Managers have no store.
pub const MANAGER_RECEIVES: usize = 4 << 20;

/// The longest message that a client receives, in bytes. A snapshot has some 32 bytes for each range of a namespace, so this is
/// room for two million ranges.
pub const CLIENT_RECEIVES: usize = 64 << 20;

/// The most items in one list of a message that a Manager receives: a list of empty items takes two bytes each on the wire, and
/// many more once decoded.
pub const MOST_ITEMS: usize = 1 << 16;

/// The most leases that one report gives back, refuses, or has copies for: as many as may be moving at once. A leader is busy with
/// a longer list for more than 10 ms, in which it renews nobody's leases.
pub const MOST_CHANGES: usize = Settings::MOST_MOVES;

/// The most bytes of an Owner's URL.
pub const URL_LEN: usize = 2_048;

/// The most bytes of a Manager's address: a host name, a colon and a port, with some room.
pub const ADDRESS_LEN: usize = 300;

/// The most bytes of an operator's words.
pub const WORDS_LEN: usize = 1_024;

/// The longest time that can be set: beyond it a setting is a mistake.
pub const LONGEST_SETTING: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The shortest lease that can be set, and the shortest hold: below it a busy machine or a network loses leases all the time.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The shortest time between two reports of an Owner that can be set: below it reports are all that a Manager does.
pub const SHORTEST_RENEWAL: Duration = Duration::from_millis(50);

/// The most virtual nodes that an Owner can be given at its start.
pub const VIRTUAL_NODES: u32 = Settings::MOST_VIRTUAL_NODES;

/// How many decisions a request for history gets unless it says otherwise.
pub const HISTORY_DEFAULT: usize = 100;

/// The most decisions that a request for history gets.
pub const HISTORY_MOST: usize = 10_000;

/// The most Flease peers. A message that names them all then fits a datagram beside the longest name of a cell.
pub const FLEASE_PEERS: usize = 128;

/// The most bytes of a datagram between Flease peers that has more than one message: below what a network carries in one piece.
pub const FLEASE_DATAGRAM: usize = 1_400;
