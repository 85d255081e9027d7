//! Begins and commits a change on behalf of a session's user.

use ringwell_store::{Change, StoreError};

use super::asked::NoPage;
use super::session::Session;
use crate::context::Context;
use crate::problem::Problem;

impl From<StoreError> for NoPage {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(refusal) => Self::Wrong(refusal.to_string()),
            error => Self::Unavailable(Problem::from(error).detail().to_owned()),
        }
    }
}

pub(super) async fn begin(context: &Context, session: &Session) -> Result<Change, NoPage> {
    Ok(context.store.change(&session.who, context.live.now()).await?)
}

pub(super) async fn commit(context: &Context, change: Change) -> Result<(), NoPage> {
    context.live.changed(change.commit().await?);
    Ok(())
}
