//! The papers, claim by claim: a file for a chapter, and one program for all, because they share a cluster.

mod centrifuge_2_1_1_paper;
mod centrifuge_2_1_2_paper;
mod centrifuge_2_2_paper;
mod centrifuge_2_3_paper;
mod centrifuge_3_paper;
mod first_assignment;
mod flease_paper;
#[path = "../flease_peers/mod.rs"]
mod flease_peers;
mod prs_2_paper;
mod prs_4_paper;
#[path = "../support/mod.rs"]
mod support;
