-- Times are whole microseconds since 1970, by the database's clock. What a
-- server did not finish can be run again.

-- +goose Up

CREATE TABLE IF NOT EXISTS leat_topics (
    id         INT    NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name       VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE,
    uid        VARCHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- tells a topic from an earlier one of its name
    partitions INT    NOT NULL,
    retention  BIGINT NOT NULL,            -- how long a message stays that no group reads
    keep       INT    NOT NULL DEFAULT 0,  -- 1: a dead letter; it stays until somebody takes it
    gen        BIGINT NOT NULL DEFAULT 0   -- raised by each group that comes; publishers insert for one of it
) ENGINE = InnoDB;

-- A row for each generation of a topic of which publishers may be at work
-- still. They lock it.
CREATE TABLE IF NOT EXISTS leat_gates (
    topic_id INT    NOT NULL,
    gen      BIGINT NOT NULL,
    PRIMARY KEY (topic_id, gen)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS leat_groups (
    id        INT    NOT NULL AUTO_INCREMENT PRIMARY KEY,
    topic_id  INT    NOT NULL,
    name      VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    gen       BIGINT NOT NULL DEFAULT 0, -- of the topic, from which on publishers know of the group
    fill_from BIGINT,  -- what is older than the group and has an id above this
    fill_to   BIGINT,  -- up to this is still to be given to it; NULL: nothing
    UNIQUE (topic_id, name)
) ENGINE = InnoDB;

-- The message itself, once. A later one never gets an id again.
CREATE TABLE IF NOT EXISTS leat_messages (
    id           BIGINT   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    topic_id     INT      NOT NULL,
    part         SMALLINT NOT NULL,
    gen          BIGINT   NOT NULL DEFAULT 0, -- of the topic, as its publisher knew it
    uuid         MEDIUMBLOB,
    "key"        MEDIUMBLOB,
    headers      LONGBLOB,  -- NULL, a JSON object of strings, or 0x00 and length-prefixed pairs
    published_at BIGINT   NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
    payload      LONGBLOB   -- NULL and empty are different
) ENGINE = InnoDB;

-- What waits for each group, and is ready.
CREATE TABLE IF NOT EXISTS leat_deliveries (
    topic_id INT      NOT NULL,
    group_id INT      NOT NULL,
    part     SMALLINT NOT NULL,
    id       BIGINT   NOT NULL,
    PRIMARY KEY (topic_id, group_id, part, id)
) ENGINE = InnoDB;

-- What waits for its time. It has no row in leat_deliveries meanwhile, so
-- that readers need not wade through it.
CREATE TABLE IF NOT EXISTS leat_delayed (
    topic_id     INT      NOT NULL,
    group_id     INT      NOT NULL,
    part         SMALLINT NOT NULL,
    id           BIGINT   NOT NULL,
    available_at BIGINT   NOT NULL,
    PRIMARY KEY (topic_id, group_id, part, id),
    INDEX due (topic_id, group_id, available_at)
) ENGINE = InnoDB;

-- Failed attempts, of messages that are delayed and of those that are not.
CREATE TABLE IF NOT EXISTS leat_attempts (
    topic_id      INT      NOT NULL,
    group_id      INT      NOT NULL,
    part          SMALLINT NOT NULL,
    id            BIGINT   NOT NULL,
    attempts      INT      NOT NULL,
    available_at  BIGINT   NOT NULL,
    first_failure BIGINT,
    last_error    MEDIUMBLOB,
    PRIMARY KEY (topic_id, group_id, part, id)
) ENGINE = InnoDB;

-- Who owns a partition of a group. Whoever takes it raises the epoch.
CREATE TABLE IF NOT EXISTS leat_partitions (
    topic_id    INT      NOT NULL,
    group_id    INT      NOT NULL,
    part        SMALLINT NOT NULL,
    owner       VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, -- the instance; NULL: nobody
    session     VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin,     -- which consumer of it
    epoch       BIGINT   NOT NULL DEFAULT 0,
    lease_until BIGINT   NOT NULL DEFAULT 0,
    PRIMARY KEY (topic_id, group_id, part)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS leat_members (
    topic_id    INT    NOT NULL,
    group_id    INT    NOT NULL,
    session     VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    instance    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (topic_id, group_id, session)
) ENGINE = InnoDB;

-- Keys of messages that were handled, or are being. Bytes compare as they are,
-- where text would take "a" and "a " for the same.
CREATE TABLE IF NOT EXISTS leat_dedup (
    scope VARBINARY(500) NOT NULL,
    "key" VARBINARY(128) NOT NULL,
    token BIGINT         NOT NULL,
    done  SMALLINT       NOT NULL,
    body  VARBINARY(16),
    until BIGINT         NOT NULL,
    owner VARBINARY(2100) NOT NULL DEFAULT '',  -- which process claimed it, where its instance was set
    PRIMARY KEY (scope, "key"),
    INDEX until (until)
) ENGINE = InnoDB;
