//! The whole system as users run it: processes of their own.

mod affinity;
mod backup;
mod commands;
mod diskless;
mod flease;
mod full;
mod killed;
mod moved;
mod ordered;
mod recordings;
mod replaced;
mod settings;
mod sight;
mod support;
mod trimmed;
