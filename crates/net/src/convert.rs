//! The one place where the wire and the core meet: every conversion between their types, both ways.
//!
//! Messages of the core become messages of the wire by `From`, which cannot fail, and come back by `TryFrom`, which refuses
//! whatever the schemas do not allow and names the field. Whether a well-formed message makes sense is for the machines to say.
//!
//! Each service has a file; `field.rs` has what they share.

mod admin;
mod error;
mod field;
mod flease;
mod kind;
mod lookup;
mod news;
mod owner;
mod settings;
mod status;
mod trim;

pub use admin::{
    HistoryQuery, LeaseQuery, admin_status, configure_command, leader_named, named, not_leader_status,
};
pub use error::{ConvertError, Problem};
pub use field::{read_manager, read_namespace, read_session, write_session};
pub(crate) use flease::read_peer;
pub use kind::read_namespace_kind;
pub use news::{NewsEncoder, WatchFrame};
pub use settings::read_settings;
pub use status::{
    write_decisions, write_lease, write_namespace_status, write_owner_status, write_quarantine,
};
