//! Finds the page for a path, and renders it.

use ringwell_core::PoolId;

use super::asked::{Live, NoPage, View};
use super::session::Session;
use super::ui::Ui;
use super::{calls, cluster, now, number, pool, pools, sites};

impl Ui {
    /// Renders the page at `path`.
    pub(super) async fn view(
        &self,
        path: &str,
        query: Option<&str>,
        session: &Session,
    ) -> Result<View, NoPage> {
        let asked = self.asked(path, query, session)?;
        match path.split('/').collect::<Vec<_>>()[..] {
            ["" | "now"] => Ok(now::view(&asked)),
            ["pools"] => Ok(pools::view(&asked)),
            ["pools", id] => pool::view(&asked, pool_id(id)?).await,
            ["number"] => number::view(&asked).await,
            ["calls"] => calls::list(&asked, asked.calls()?).await,
            ["calls", id] => calls::one(&asked, asked.calls()?, id).await,
            ["webhooks"] => calls::webhooks(&asked, asked.calls()?).await,
            ["sites"] => sites::list(&asked).await,
            ["sites", key] => sites::one(&asked, key).await,
            ["cluster"] => Ok(cluster::view(&asked)),
            _ => Err(NoPage::Missing("There is no such page.")),
        }
    }

    /// The figures that change while the page at `path` is open.
    pub(super) async fn live(
        &self,
        path: &str,
        query: Option<&str>,
        session: &Session,
    ) -> Result<Live, NoPage> {
        if let Some(id) = path.strip_prefix("pools/") {
            // Does not render the whole page, because that requires slow calculations and a scan of
            // the pool's numbers.
            let asked = self.asked(path, query, session)?;
            return Ok(pool::live(&asked, pool_id(id)?).await);
        }
        Ok(self.view(path, query, session).await?.live)
    }
}

fn pool_id(text: &str) -> Result<PoolId, NoPage> {
    text.parse().map(PoolId).map_err(|_| NoPage::Missing("There is no such ring pool."))
}
