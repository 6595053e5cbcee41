//! A cache over a database.

use axum::Router;
use clap::Args;

use crate::Failure;
use crate::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    #[command(flatten)]
    member: MemberArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: CacheArgs) -> Result<(), Failure> {
    Member::bind(&args.member, "cache").await?.join().await?.serve(Router::new()).await
}
