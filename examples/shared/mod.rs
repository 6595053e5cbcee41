//! What the applications share: [`member`] is a server of a pool, [`call`] is a caller of one, [`frontend`]
//! passes requests on to the owners of their keys, and [`program`] makes a program of such parts.

pub mod call;
pub mod frontend;
pub mod http;
pub mod member;
pub mod program;
pub mod stamp;
