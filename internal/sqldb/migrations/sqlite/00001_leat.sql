-- Times are whole microseconds since 1970, by the database's clock.

-- +goose Up

CREATE TABLE leat_topics (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    uid        TEXT    NOT NULL,           -- tells a topic from an earlier one of its name
    partitions INTEGER NOT NULL,
    retention  INTEGER NOT NULL,           -- how long a message stays that no group reads
    keep       INTEGER NOT NULL DEFAULT 0  -- 1: a dead letter; it stays until somebody takes it
);

CREATE TABLE leat_groups (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id  INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    fill_from INTEGER,  -- what is older than the group and has an id above this
    fill_to   INTEGER,  -- up to this is still to be given to it; NULL: nothing
    UNIQUE (topic_id, name)
);

-- The message itself, once. Rows are taken whole: a later one never gets an id again.
CREATE TABLE leat_messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id     INTEGER NOT NULL,
    part         INTEGER NOT NULL,
    uuid         BLOB,
    key          BLOB,
    headers      BLOB,  -- NULL, a JSON object of strings, or 0x00 and length-prefixed pairs
    published_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    payload      BLOB   -- NULL and empty are different; last, since it may fill many pages
);

-- What waits for each group, and is ready.
CREATE TABLE leat_deliveries (
    topic_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    part     INTEGER NOT NULL,
    id       INTEGER NOT NULL,
    PRIMARY KEY (topic_id, group_id, part, id)
) WITHOUT ROWID;

-- What waits for its time. It has no row in leat_deliveries meanwhile, so
-- that readers need not wade through it.
CREATE TABLE leat_delayed (
    topic_id     INTEGER NOT NULL,
    group_id     INTEGER NOT NULL,
    part         INTEGER NOT NULL,
    id           INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    PRIMARY KEY (topic_id, group_id, part, id)
) WITHOUT ROWID;

CREATE INDEX leat_delayed_due ON leat_delayed (topic_id, group_id, available_at);

-- Failed attempts, of messages that are delayed and of those that are not.
CREATE TABLE leat_attempts (
    topic_id      INTEGER NOT NULL,
    group_id      INTEGER NOT NULL,
    part          INTEGER NOT NULL,
    id            INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    available_at  INTEGER NOT NULL,
    first_failure INTEGER,
    last_error    TEXT,
    PRIMARY KEY (topic_id, group_id, part, id)
) WITHOUT ROWID;

-- Who owns a partition of a group. Whoever takes it raises the epoch.
CREATE TABLE leat_partitions (
    topic_id    INTEGER NOT NULL,
    group_id    INTEGER NOT NULL,
    part        INTEGER NOT NULL,
    owner       TEXT,                        -- the instance; NULL: nobody
    session     TEXT,                        -- which consumer of it
    epoch       INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic_id, group_id, part)
) WITHOUT ROWID;

CREATE TABLE leat_members (
    topic_id    INTEGER NOT NULL,
    group_id    INTEGER NOT NULL,
    session     TEXT    NOT NULL,
    instance    TEXT    NOT NULL,
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (topic_id, group_id, session)
) WITHOUT ROWID;

-- Keys of messages that were handled, or are being.
CREATE TABLE leat_dedup (
    scope TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    token INTEGER NOT NULL,
    done  INTEGER NOT NULL,
    body  BLOB,
    until INTEGER NOT NULL,
    owner TEXT    NOT NULL DEFAULT '',  -- which process claimed it, where its instance was set
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE INDEX leat_dedup_until ON leat_dedup (until);
