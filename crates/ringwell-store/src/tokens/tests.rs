use argon2::Argon2;
use argon2::PasswordHasher;
use ringwell_core::Millis;

use super::*;
use crate::Location;

const OLD: &str = "rw_00112233445566ff_a-secret-of-an-earlier-version";

/// Returns a store that contains a token with an Argon2 hash, as earlier versions of Ringwell
/// stored it.
async fn with_old_token() -> (tempfile::TempDir, Store) {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::open(&Location::File(folder.path().join("d.sqlite"))).await.unwrap();
    let mut change = store.change("tests", Millis(1)).await.unwrap();
    let (grant, _) = change.create_token("old", Role::Write, None, [7; 40]).await.unwrap();
    let hash = Argon2::default().hash_password_with_salt(OLD.as_bytes(), &[3; 16]).unwrap();
    let query = sqlx::query("UPDATE tokens SET id = $1, hash = $2 WHERE id = $3");
    let query = query.bind("00112233445566ff").bind(hash.to_string()).bind(grant.id);
    query.execute(&mut *change.tx).await.unwrap();
    change.commit().await.unwrap();
    (folder, store)
}

async fn stored_hash(store: &Store) -> String {
    let query = sqlx::query("SELECT id, name, role, network, hash FROM tokens");
    let row = query.fetch_one(&mut *store.database.read().await.unwrap()).await.unwrap();
    grant(&row).unwrap().1
}

#[tokio::test]
async fn a_token_of_an_earlier_version_remains_valid_and_gets_a_sha256() {
    let (_folder, store) = with_old_token().await;
    let wrong = format!("{OLD}x");
    assert_eq!(store.verify_token(&wrong).await.unwrap(), None);
    assert!(stored_hash(&store).await.starts_with("$argon2id$"));
    for _ in 0..2 {
        assert_eq!(store.verify_token(OLD).await.unwrap().unwrap().name, "old");
        let sha256 = format!("sha256:{}", Token::parse(OLD).unwrap().hash());
        assert_eq!(stored_hash(&store).await, sha256);
        assert_eq!(store.verify_token(&wrong).await.unwrap(), None);
    }
}

/// Returns the peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Checking guessed tokens concurrently takes the memory of one check. In an earlier version, each
/// check took 19 MiB, and all guesses were checked at the same time.
#[tokio::test]
async fn guesses_at_a_known_id_take_the_memory_of_one() {
    let (_folder, store) = with_old_token().await;
    let before = peak();
    let guess = |at: u32| {
        let store = store.clone();
        tokio::spawn(async move {
            store.verify_token(&format!("rw_00112233445566ff_{at}")).await.unwrap()
        })
    };
    let guesses: Vec<_> = (0..24).map(guess).collect();
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), None);
    }
    let grown = peak() - before;
    assert!(grown < 100 << 20, "{grown} bytes more");
}

#[tokio::test]
async fn malformed_token_ids_are_refused() {
    let (_folder, store) = with_old_token().await;
    for presented in ["rw_0011223344556\0ff_x", "rw_00112233445566FF_x", "rw_0_x", "rw__", "\0"] {
        assert_eq!(store.verify_token(presented).await.unwrap(), None, "{presented:?}");
    }
}
