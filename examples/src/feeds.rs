//! Feeds.

use axum::Router;
use clap::Args;

use crate::Failure;
use crate::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct FeedsArgs {
    #[command(flatten)]
    member: MemberArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: FeedsArgs) -> Result<(), Failure> {
    Member::bind(&args.member, "feeds").await?.join().await?.serve(Router::new()).await
}
