//! Visits the owners of an interval of ordered keys, one after the other.

use std::cell::RefCell;
use std::future::Future;
use std::ops::{Bound, RangeBounds};

use super::{Refusal, Router, RouterError};
use crate::hot::Route;
use crate::keys::{Interval, NoKey, Ordered, OrderedKey};

/// Why a visit ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VisitError<E> {
    /// A bound of the interval is none of the namespace.
    #[error(transparent)]
    Key(#[from] NoKey),
    /// An owner did not answer.
    #[error(transparent)]
    Owner(RouterError<E>),
}

impl Router<Ordered> {
    /// Asks the owners of an interval of application keys, in the order of the keys: calls `attempt` with each owner's route and the part of
    /// the interval that is its own, and returns their answers in that order. Each is asked as by [`Router::send`], with patience of
    /// its own; if a part has other owners by then, they are asked.
    ///
    /// Every application key of the interval is in exactly one part that was answered. The answers are not all of one moment. An owner
    /// that does not own the whole part that it is asked for should refuse with [`Refusal::NotOwner`].
    pub async fn visit<B, T, E, F, R>(
        &self,
        bounds: impl RangeBounds<B>,
        mut attempt: F,
    ) -> Result<Vec<T>, VisitError<E>>
    where
        B: AsRef<[u8]>,
        F: FnMut(Route, Interval) -> R,
        R: Future<Output = Result<T, Refusal<E>>>,
    {
        let mut answers = Vec::new();
        let mut rest = self.routes.first_between(&bounds)?;
        while let Some((interval, first)) = rest {
            let (answer, asked) = self.visit_first(&interval, first, &mut attempt).await?;
            answers.push(answer);
            rest = self.rest_after(&asked, interval)?;
        }
        Ok(answers)
    }

    /// Asks the owner of the first key for as much of an interval as it owns, and says how much that was.
    async fn visit_first<T, E, F, R>(
        &self,
        interval: &Interval,
        first: OrderedKey,
        attempt: &mut F,
    ) -> Result<(T, Interval), VisitError<E>>
    where
        F: FnMut(Route, Interval) -> R,
        R: Future<Output = Result<T, Refusal<E>>>,
    {
        let prefix = self.routes.prefix().ok_or(NoKey::Unknown)?;
        let asked = RefCell::new(interval.clone());
        let answer = self.send(first, |route| {
            let own = interval.intersection(&prefix.interval_of(route.range()));
            let part = own.unwrap_or_else(|| interval.clone());
            *asked.borrow_mut() = part.clone();
            attempt(route, part)
        });
        let answer = answer.await.map_err(VisitError::Owner)?;
        Ok((answer, asked.into_inner()))
    }

    /// What is left of an interval after its first part, and the first key of that.
    fn rest_after(
        &self,
        part: &Interval,
        interval: Interval,
    ) -> Result<Option<(Interval, OrderedKey)>, NoKey> {
        let Some(from) = part.to.clone() else { return Ok(None) };
        let to = interval.to.map_or(Bound::Unbounded, Bound::Excluded);
        self.routes.first_between(&(Bound::Included(from), to))
    }
}
