//! What was posted last for each user, so that it can be posted again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use axum::body::Bytes;

/// The most posts of one user that are kept.
const MAX_POSTS: usize = 32;

/// Something that was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Post {
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// The posts of each user, the oldest first.
#[derive(Debug)]
pub(super) struct Posts {
    ttl: Duration,
    users: HashMap<String, VecDeque<(Post, Instant)>>,
}

impl Posts {
    pub(super) fn new(ttl: Duration) -> Posts {
        Posts { ttl, users: HashMap::new() }
    }

    /// Keeps a post. The same one is kept once; the oldest go when there are too many.
    pub(super) fn keep(&mut self, user: &str, post: Post) {
        let posts = self.users.entry(user.to_owned()).or_default();
        posts.retain(|(kept, _)| *kept != post);
        posts.push_back((post, Instant::now()));
        if posts.len() > MAX_POSTS {
            posts.pop_front();
        }
    }

    /// Forgets what is too old.
    pub(super) fn sweep(&mut self) {
        self.users.retain(|_, posts| {
            posts.retain(|(_, since)| since.elapsed() < self.ttl);
            !posts.is_empty()
        });
    }

    /// The posts of the users that `is_meant` names, as they came.
    pub(super) fn of(&mut self, is_meant: impl Fn(&str) -> bool) -> Vec<(String, Vec<Post>)> {
        self.sweep();
        let meant = self.users.iter().filter(|(user, _)| is_meant(user));
        let posts = |posts: &VecDeque<(Post, Instant)>| posts.iter().map(|(post, _)| post.clone()).collect();
        meant.map(|(user, of_user)| (user.clone(), posts(of_user))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(number: usize) -> Post {
        Post { path: "/feeds/frank/events".to_owned(), body: number.to_string().into() }
    }

    #[test]
    fn the_last_posts_of_a_user_are_kept_once_each() {
        let mut kept = Posts::new(Duration::from_secs(3600));
        kept.keep("grace", post(0));
        (0..=MAX_POSTS).chain([5]).for_each(|number| kept.keep("frank", post(number)));
        let of_frank = kept.of(|user| user == "frank");
        let expected: Vec<Post> =
            (1..=MAX_POSTS).filter(|number| *number != 5).chain([5]).map(post).collect();
        assert_eq!(of_frank, [("frank".to_owned(), expected)]);
    }

    #[test]
    fn old_posts_are_forgotten() {
        let mut kept = Posts::new(Duration::ZERO);
        kept.keep("frank", post(0));
        assert!(kept.of(|_| true).is_empty());
        assert!(kept.users.is_empty());
    }
}
