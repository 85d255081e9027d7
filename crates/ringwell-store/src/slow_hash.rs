//! Checks tokens against argon2 hashes, which an earlier version stored.

use std::sync::Arc;

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use tokio::sync::Mutex;

/// The memory for one argon2 hash. The lock on this memory ensures that only one hash is computed
/// at a time, because each takes 19 MiB and tens of milliseconds. Anyone who knows a token's id,
/// which is not secret, can request such a computation. All threads share this buffer, because
/// otherwise each thread's heap would keep its own buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowHash(Arc<Mutex<Vec<Block>>>);

impl SlowHash {
    /// Whether `presented` has this argon2 hash. Waits until no other hash is being computed.
    pub(crate) async fn fits(&self, presented: &str, hash: &str) -> bool {
        let mut room = Arc::clone(&self.0).lock_owned().await;
        let (presented, hash) = (presented.to_owned(), hash.to_owned());
        // The lock is held until the work is done, even if the client has disconnected.
        let work = tokio::task::spawn_blocking(move || fits(&mut room, &presented, &hash));
        work.await.unwrap_or(false)
    }
}

/// Whether `hash` is the argon2 hash of `presented`. An earlier version stored such hashes, with
/// the default parameters of the `argon2` crate.
fn fits(room: &mut Vec<Block>, presented: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    let (Some(salt), Some(stored), Ok(params)) = (hash.salt, hash.hash, Params::try_from(&hash))
    else {
        return false;
    };
    if params.block_count() > Params::DEFAULT.block_count() {
        return false;
    }
    room.resize(params.block_count(), Block::default());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut out = vec![0; stored.len()];
    let hashed =
        argon2.hash_password_into_with_memory(presented.as_bytes(), &salt, &mut out, &mut room[..]);
    // The comparison takes the same time regardless of where the two hashes differ.
    hashed.is_ok() && Output::new(&out).is_ok_and(|out| out == stored)
}
