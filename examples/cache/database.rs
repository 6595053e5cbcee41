//! The database: items by name, and which range of keys was last claimed under which lease.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use centrifuge::leased_map::LeasedKey;
use centrifuge::{Generation, Key, KeyRange};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::Value;

/// How long a transaction waits for those of other servers.
const BUSY: Duration = Duration::from_secs(5);

/// How long until another try where SQLite does not wait by itself.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

const TABLES: &str = "
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS items (name TEXT PRIMARY KEY, key INTEGER NOT NULL, value TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS items_by_key ON items (key);
    CREATE TABLE IF NOT EXISTS claims (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, lease INTEGER NOT NULL);
    COMMIT;
";

/// Why the database does not do something.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    /// Another server has claimed the key since.
    #[error(
        "lease {0} is not the one that the database has a claim of: look the key up again and ask its owner"
    )]
    Stale(Generation),
    /// SQLite says no.
    #[error("the database failed, try again: {0}")]
    Failed(#[from] rusqlite::Error),
    /// What is stored is not what was stored.
    #[error("the database has an item that is no JSON: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// One server's connection. Cheap to clone. Every call blocks until the database has answered.
#[derive(Clone)]
pub(super) struct Database {
    connection: Arc<Mutex<Connection>>,
}

impl Database {
    /// Opens a file, and makes it a database if it is none yet.
    pub(super) fn open(file: &Path) -> Result<Database, DatabaseError> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(BUSY)?;
        prepare(&connection)?;
        Ok(Database { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Claims a range under a lease, unless a part of it was claimed under a newer one, and reads up to `most`
    /// items of it.
    pub(super) fn claim(
        &self,
        range: KeyRange,
        lease: Generation,
        most: u32,
    ) -> Result<Vec<(String, Value)>, DatabaseError> {
        self.transaction(|transaction| {
            let earlier = claims_over(transaction, range)?;
            if earlier.iter().any(|(_, claimed)| *claimed > lease) {
                return Err(DatabaseError::Stale(lease));
            }
            for (part, claimed) in earlier {
                transaction.execute("DELETE FROM claims WHERE first = ?1", [ordered(part.first().0)])?;
                // What sticks out of the range stays claimed as it was.
                let (before, after) = part.difference(range);
                for rest in before.into_iter().chain(after) {
                    note_claim(transaction, rest, claimed)?;
                }
            }
            note_claim(transaction, range, lease)?;
            items_of(transaction, range, most)
        })
    }

    /// The value of a name.
    pub(super) fn read(&self, name: &str) -> Result<Option<Value>, DatabaseError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let select = "SELECT value FROM items WHERE name = ?1";
        let text: Option<String> = connection.query_row(select, [name], |row| row.get(0)).optional()?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Writes the value of a name, or deletes it, if the claim over its key is `lease`. Says whether there was one.
    pub(super) fn write(
        &self,
        name: &str,
        value: Option<&Value>,
        lease: Generation,
    ) -> Result<bool, DatabaseError> {
        let key = name.to_owned().key();
        self.transaction(|transaction| {
            let claims = claims_over(transaction, KeyRange::one(key))?;
            if !claims.iter().any(|(_, claimed)| *claimed == lease) {
                return Err(DatabaseError::Stale(lease));
            }
            let was_there = transaction.execute("DELETE FROM items WHERE name = ?1", [name])? > 0;
            if let Some(value) = value {
                let insert = "INSERT INTO items (name, key, value) VALUES (?1, ?2, ?3)";
                transaction.execute(insert, params![name, ordered(key.0), value.to_string()])?;
            }
            Ok(was_there)
        })
    }

    /// All of `operate` or, if it fails, nothing of it. Nobody else writes meanwhile.
    fn transaction<T>(
        &self,
        operate: impl FnOnce(&Transaction<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let result = operate(&transaction)?;
        transaction.commit()?;
        Ok(result)
    }
}

/// Makes the tables. Other servers may be doing the same, and SQLite waits for nobody while it changes its kind
/// of journal.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + BUSY;
    loop {
        let journal = connection.pragma_update(None, "journal_mode", "WAL");
        match journal.and_then(|()| connection.execute_batch(TABLES)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until =>
            {
                std::thread::sleep(RETRY_INTERVAL);
            }
            prepared => return prepared,
        }
    }
}

/// The claims that share a key with a range.
fn claims_over(
    transaction: &Transaction<'_>,
    range: KeyRange,
) -> rusqlite::Result<Vec<(KeyRange, Generation)>> {
    let select = "SELECT first, last, lease FROM claims WHERE first <= ?2 AND last >= ?1";
    let mut select = transaction.prepare_cached(select)?;
    let rows = select.query_map([ordered(range.first().0), ordered(range.last().0)], |row| {
        let number = |column| row.get(column).map(number);
        Ok((number(0)?, number(1)?, number(2)?))
    })?;
    let mut claims = Vec::new();
    for row in rows {
        let (first, last, lease) = row?;
        claims.extend(KeyRange::new(Key(first), Key(last)).map(|range| (range, Generation(lease))));
    }
    Ok(claims)
}

fn note_claim(transaction: &Transaction<'_>, range: KeyRange, lease: Generation) -> rusqlite::Result<()> {
    let insert = "INSERT INTO claims (first, last, lease) VALUES (?1, ?2, ?3)";
    let row = [range.first().0, range.last().0, lease.0].map(ordered);
    transaction.execute(insert, row).map(|_| ())
}

fn items_of(
    transaction: &Transaction<'_>,
    range: KeyRange,
    most: u32,
) -> Result<Vec<(String, Value)>, DatabaseError> {
    let select = "SELECT name, value FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    let mut select = transaction.prepare_cached(select)?;
    let bounds = params![ordered(range.first().0), ordered(range.last().0), most];
    let rows = select.query_map(bounds, |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let item = |row: Result<(String, String), _>| {
        let (name, text) = row?;
        Ok((name, serde_json::from_str(&text)?))
    };
    rows.map(item).collect()
}

/// SQLite's integers have a sign: the same order, with the lowest number the most negative.
fn ordered(number: u64) -> i64 {
    (number ^ (1 << 63)).cast_signed()
}

/// The number again.
fn number(ordered: i64) -> u64 {
    ordered.cast_unsigned() ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    const MIDDLE: u64 = 1 << 63;

    /// Two servers' connections to one file.
    fn two() -> (TempDir, Database, Database) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("items.db");
        let open = || Database::open(&file).expect("opened");
        let (one, other) = (open(), open());
        (directory, one, other)
    }

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("not empty")
    }

    fn is_stale<T>(result: &Result<T, DatabaseError>) -> bool {
        matches!(result, Err(DatabaseError::Stale(_)))
    }

    #[test]
    fn servers_that_start_together_make_one_database() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("items.db");
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| Database::open(&file).expect("opened"));
                }
            });
        }
    }

    #[test]
    fn numbers_keep_their_order() {
        let numbers = [0, 1, MIDDLE - 1, MIDDLE, MIDDLE + 1, u64::MAX];
        assert!(numbers.map(ordered).is_sorted());
        assert_eq!(numbers.map(|it| number(ordered(it))), numbers);
    }

    #[test]
    fn a_former_owner_can_neither_overwrite_nor_insert_nor_delete() {
        let (_directory, former, next) = two();
        former.claim(KeyRange::ALL, Generation(4), 10).expect("nobody has claimed it");
        former.write("door", Some(&json!("open")), Generation(4)).expect("it is the owner");

        let found = next.claim(KeyRange::ALL, Generation(5), 10).expect("a newer lease");
        assert_eq!(found, [("door".to_owned(), json!("open"))]);
        assert!(is_stale(&former.write("door", Some(&json!("shut")), Generation(4))), "overwrites");
        assert!(is_stale(&former.write("window", Some(&json!("new")), Generation(4))), "inserts a new name");
        assert!(is_stale(&former.write("door", None, Generation(4))), "deletes");
        assert!(is_stale(&former.claim(KeyRange::ALL, Generation(4), 10)), "claims it back");
        assert!(is_stale(&former.claim(range(7, 7), Generation(4), 10)), "claims a part of it back");

        assert_eq!(next.read("door").expect("read"), Some(json!("open")));
        assert_eq!(next.read("window").expect("read"), None);
        assert!(next.write("door", Some(&json!("shut")), Generation(5)).expect("it is the owner"));
    }

    #[test]
    fn nobody_writes_without_a_claim() {
        let (_directory, server, _) = two();
        assert!(is_stale(&server.write("door", Some(&json!(1)), Generation(9))));
        server.claim(KeyRange::ALL, Generation(4), 10).expect("claimed");
        assert!(
            is_stale(&server.write("door", Some(&json!(1)), Generation(9))),
            "it has not claimed under 9"
        );
    }

    #[test]
    fn a_part_that_moved_is_fenced_and_the_rest_goes_on() {
        let (_directory, one, other) = two();
        let key = "door".to_owned().key().0;
        one.claim(KeyRange::ALL, Generation(4), 10).expect("claimed");
        other.claim(range(key - 1, key + 1), Generation(5), 10).expect("a part moves");
        assert!(is_stale(&one.write("door", Some(&json!(1)), Generation(4))));
        assert!(other.write("door", Some(&json!(2)), Generation(5)).is_ok());
        assert!(one.write("window", Some(&json!(3)), Generation(4)).is_ok());
        let claims =
            one.transaction(|transaction| Ok(claims_over(transaction, KeyRange::ALL)?)).expect("read");
        let expected = [(range(0, key - 2), 4), (range(key - 1, key + 1), 5), (range(key + 2, u64::MAX), 4)];
        assert_eq!(claims, expected.map(|(range, lease)| (range, Generation(lease))));
    }

    #[test]
    fn a_range_has_the_items_of_its_keys_on_both_sides_of_the_sign() {
        let (_directory, database, _) = two();
        database.claim(KeyRange::ALL, Generation(1), 0).expect("claimed");
        let names: Vec<String> = (0..64).map(|number| format!("item-{number}")).collect();
        for name in &names {
            database.write(name, Some(&json!(name)), Generation(1)).expect("written");
        }
        for part in [range(0, MIDDLE - 1), range(MIDDLE, u64::MAX), range(MIDDLE / 2, MIDDLE / 2 * 3)] {
            let mut found: Vec<_> =
                database.claim(part, Generation(1), 100).expect("read").into_iter().collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            let mut expected: Vec<_> = names
                .iter()
                .filter(|name| part.contains(name.key()))
                .map(|it| (it.clone(), json!(it)))
                .collect();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            assert!(!expected.is_empty());
            assert_eq!(found, expected);
        }
        assert_eq!(database.claim(KeyRange::ALL, Generation(2), 5).expect("read").len(), 5);
    }
}
