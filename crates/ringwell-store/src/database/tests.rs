use sqlx::{Executor, Row};

use super::{Database, Location};
use crate::is_full;
use crate::schema::{Schema, Step};

const SCHEMA: Schema = Schema {
    version_table: "test_version",
    steps: &[Step { both: "CREATE TABLE lines (line TEXT NOT NULL)", sqlite: "", postgres: "" }],
};

/// If the disk is full, SQLite rolls back a transaction on its own. This test uses a `ROLLBACK`
/// statement instead.
#[tokio::test]
async fn a_transaction_that_the_database_has_ended_does_not_spoil_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("test.sqlite"));
    let database = Database::open(&location, &SCHEMA).await.unwrap();
    let mut tx = database.write().await.unwrap();
    tx.execute("INSERT INTO lines VALUES ('lost')").await.unwrap();
    tx.execute("ROLLBACK").await.unwrap();
    tx.commit().await.unwrap_err();
    for _ in 0..3 {
        let mut tx = database.write().await.unwrap();
        tx.execute("INSERT INTO lines VALUES ('kept')").await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = database.read().await.unwrap();
    let row = tx.fetch_one("SELECT count(*), min(line) FROM lines").await.unwrap();
    assert_eq!((row.get::<i64, _>(0), row.get::<String, _>(1)), (3, "kept".to_owned()));
}

#[tokio::test]
async fn a_full_disk_is_known_by_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("test.sqlite"));
    let database = Database::open(&location, &SCHEMA).await.unwrap();
    let mut tx = database.write().await.unwrap();
    tx.execute("PRAGMA max_page_count = 8").await.unwrap();
    let error = tx.execute("INSERT INTO lines VALUES (hex(zeroblob(100000)))").await.unwrap_err();
    assert!(is_full(&error), "{error}");
    let error = database.read().await.unwrap().execute("SELECT nothing").await.unwrap_err();
    assert!(!is_full(&error), "{error}");
}

/// Both files beside the database stay when a process ends, because SQLite needs them at the next
/// startup.
#[tokio::test]
async fn a_process_that_ends_leaves_the_database_complete_and_the_files_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.sqlite");
    let database = Database::open(&Location::File(path.clone()), &SCHEMA).await.unwrap();
    let mut tx = database.write().await.unwrap();
    tx.execute("INSERT INTO lines VALUES ('kept')").await.unwrap();
    tx.commit().await.unwrap();
    database.close_keeping_files().await;
    let bytes = |ending| {
        let file = folder.path().join(format!("test.sqlite{ending}"));
        std::fs::metadata(file).unwrap().len()
    };
    assert_eq!((bytes("-wal"), bytes("-shm")), (0, 32 * 1024));
    // A copy of the database contains the change even without the write-ahead log.
    let copy = folder.path().join("copy.sqlite");
    std::fs::copy(&path, &copy).unwrap();
    for path in [path, copy] {
        let database = Database::open(&Location::File(path), &SCHEMA).await.unwrap();
        let mut tx = database.read().await.unwrap();
        let row = tx.fetch_one("SELECT min(line) FROM lines").await.unwrap();
        assert_eq!(row.get::<String, _>(0), "kept");
    }
}

/// Changes fail until the removed or replaced file is back. Without the check in `Database::ready`,
/// SQLite would continue to use the removed file.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_accepts_no_changes_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("test.sqlite"), folder.path().join("aside.sqlite"));
    let database = Database::open(&Location::File(path.clone()), &SCHEMA).await.unwrap();
    std::fs::rename(&path, &aside).unwrap();
    for is_replaced in [false, true] {
        if is_replaced {
            std::fs::copy(&aside, &path).unwrap();
        }
        let error = database.write().await.unwrap_err();
        assert!(error.to_string().contains("was removed or replaced"), "{error}");
    }
    std::fs::rename(&aside, &path).unwrap();
    database.write().await.unwrap().commit().await.unwrap();
}
