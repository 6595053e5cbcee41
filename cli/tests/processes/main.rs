//! The whole system as users run it: processes of their own.

mod commands;
mod killed;
mod moved;
mod recordings;
mod settings;
mod sight;
mod support;
