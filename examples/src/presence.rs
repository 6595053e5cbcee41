//! Presence.

use axum::Router;
use clap::Args;

use crate::Failure;
use crate::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct PresenceArgs {
    #[command(flatten)]
    member: MemberArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: PresenceArgs) -> Result<(), Failure> {
    Member::bind(&args.member, "presence").await?.join().await?.serve(Router::new()).await
}
