//! Sectioned documents.

use axum::Router;
use clap::Args;

use crate::Failure;
use crate::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct DocumentsArgs {
    #[command(flatten)]
    member: MemberArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: DocumentsArgs) -> Result<(), Failure> {
    Member::bind(&args.member, "documents").await?.join().await?.serve(Router::new()).await
}
