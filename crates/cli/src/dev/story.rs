//! The story of the demonstration: what happens to the pool, in plain words.

use std::time::{Duration, Instant};

use super::pool::{Pool, Sight};
use super::view::View;
use crate::failure::Failure;
use crate::words::show_share;

/// How often the pool's state is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a chapter may take.
const CHAPTER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the pool is left alone between chapters.
const CHAPTER_PAUSE: Duration = Duration::from_millis(800);

/// Tells the story until the time is over.
pub(super) struct Story<'a> {
    pool: &'a mut Pool,
    view: View,
    end: Option<Instant>,
}

/// Whether the story goes on.
enum Next {
    Chapter,
    End,
}

impl<'a> Story<'a> {
    pub(super) fn new(pool: &'a mut Pool, view: View, end: Option<Instant>) -> Story<'a> {
        Story { pool, view, end }
    }

    /// The whole story, again and again until its time is over.
    pub(super) async fn tell(mut self) -> Result<(), Failure> {
        self.view.say(&format!(
            "A Manager runs at {}. Leases last 3 s here, so that things happen soon; 60 s is usual.",
            self.pool.manager_address()
        ));
        if let Some(folder) = self.pool.certificates() {
            self.view.say(&format!(
                "It accepts only TLS. While this runs, certificates for operators are in {}.",
                folder.display()
            ));
        }
        for name in ["server-1", "server-2", "server-3"] {
            self.pool.start_server(name).await?;
        }
        self.wait_for(|sight| sight.owners.len() == 3 && sight.is_at_rest()).await?;
        self.view.say("Three servers have joined an empty pool and share the keys. Each key has one owner.");
        for name in ["caller-1", "caller-2"] {
            self.pool.start_caller(name).await?;
        }
        self.view.say("Two callers count things: they find each key's owner in a table of their own.");
        for round in 0.. {
            for chapter in 0..CHAPTERS {
                if let Next::End = self.rest(CHAPTER_PAUSE).await? {
                    return Ok(());
                }
                self.chapter(chapter, round).await?;
            }
        }
        Ok(())
    }

    async fn chapter(&mut self, chapter: usize, round: usize) -> Result<(), Failure> {
        match chapter {
            0 => self.join().await,
            1 => self.crash(["server-2", "server-3", "server-1"][round % 3]).await,
            2 => self.drain().await,
            3 => self.restart_manager().await,
            _ => self.skew_load().await,
        }
    }

    async fn join(&mut self) -> Result<(), Failure> {
        let losses = self.pool.losses();
        self.view.say("server-4 joins.");
        self.pool.start_server("server-4").await?;
        let sight = self.wait_for(|sight| sight.ranges_of("server-4") > 0 && sight.is_at_rest()).await?;
        let share = show_share(sight.share_of("server-4"));
        let raised = self.pool.losses() - losses;
        self.view.say(&format!(
            "It got {share} of the keys, each with its state: the old owner copied, froze, and let go. Losses raised: {raised}."
        ));
        Ok(())
    }

    async fn crash(&mut self, name: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let losses = self.pool.losses();
        self.pool.crash_server(name);
        self.view.say(&format!(
            "{name} loses power. It may be alive for all the Manager knows: its keys wait until its leases have run out."
        ));
        self.wait_for(|sight| sight.ranges_of(name) == 0 && sight.is_at_rest()).await?;
        let raised = self.pool.losses() - losses;
        self.view.say(&format!(
            "After {:.1} s its keys have new owners. Their state is gone, and both callers were told which keys: {raised} notices.",
            began.elapsed().as_secs_f64()
        ));
        self.pool.start_server(name).await?;
        self.wait_for(|sight| sight.ranges_of(name) > 0 && sight.is_at_rest()).await?;
        self.view.say(&format!(
            "{name} is back, as a new process, and its keys moved back to it with their state."
        ));
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        let losses = self.pool.losses();
        self.view.say("server-4 is to be stopped for an upgrade: it is drained first.");
        self.pool.drain_server("server-4").await?;
        self.wait_for(|sight| sight.ranges_of("server-4") == 0 && sight.is_at_rest()).await?;
        let raised = self.pool.losses() - losses;
        self.view.say(&format!(
            "It moved all its state to the others and left. Losses raised: {raised}. Nobody waited for a lease."
        ));
        Ok(())
    }

    async fn restart_manager(&mut self) -> Result<(), Failure> {
        let losses = self.pool.losses();
        self.view.say("The Manager is killed and started again on its file.");
        self.pool.crash_manager().await?;
        self.wait_for(Sight::is_at_rest).await?;
        let raised = self.pool.losses() - losses;
        self.view.say(&format!(
            "It knows every lease it ever granted. No lease was lost; losses raised: {raised}."
        ));
        Ok(())
    }

    async fn skew_load(&mut self) -> Result<(), Failure> {
        let nodes =
            |sight: &Sight| -> Vec<u32> { sight.owners.iter().map(|owner| owner.virtual_nodes).collect() };
        let before = self.wait_for(Sight::is_at_rest).await?;
        let Some(busy) = before.owners.first() else { return Ok(()) };
        self.view.say(&format!("Callers now ask mostly for keys of {}.", busy.name));
        self.pool.skew.set(Some(busy.url.clone()));
        let since = Instant::now();
        let moved = loop {
            let Next::Chapter = self.rest(POLL_INTERVAL).await? else { break false };
            let Some(sight) = self.look().await else { continue };
            if nodes(&sight) != nodes(&before) {
                break true;
            }
            if since.elapsed() > Duration::from_secs(25) {
                break false;
            }
        };
        self.pool.skew.set(None);
        if moved {
            self.view.say(&format!(
                "The Manager moved virtual nodes from {} to idle servers: its load was more than 10 % above the mean.",
                busy.name
            ));
        }
        Ok(())
    }

    /// Waits until the pool satisfies a condition.
    async fn wait_for(&mut self, wish: impl Fn(&Sight) -> bool) -> Result<Sight, Failure> {
        let since = Instant::now();
        loop {
            if let Some(sight) = self.look().await
                && wish(&sight)
            {
                return Ok(sight);
            }
            if since.elapsed() > CHAPTER_TIMEOUT {
                return Err(Failure::failed("the pool did not come to rest within a minute: this is a bug"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Lets the pool run for a while.
    async fn rest(&mut self, length: Duration) -> Result<Next, Failure> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            if self.end.is_some_and(|end| Instant::now() >= end) {
                return Ok(Next::End);
            }
            self.look().await;
            tokio::time::sleep(POLL_INTERVAL.min(length)).await;
        }
        Ok(Next::Chapter)
    }

    async fn look(&mut self) -> Option<Sight> {
        let sight = self.pool.sight().await;
        if let Some(sight) = &sight {
            self.view.show(sight, &self.pool.counts);
        }
        sight
    }
}

/// How many chapters a round has.
const CHAPTERS: usize = 5;
