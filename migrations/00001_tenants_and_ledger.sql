-- Rules of this folder.
--
-- Gateways of two releases share one database during an upgrade. A migration therefore only
-- adds: tables, indexes, and columns with a default. An unused column is dropped one release
-- after the last release that reads it.
--
-- Every file runs on SQLite and on PostgreSQL:
-- - All numbers are BIGINT.
-- - Times are microseconds since 1970 in UTC, 0 for none; days count from 1970-01-01 in UTC.
-- - Money is in nano-units. Booleans are 1 and 0. Digests are TEXT in hexadecimal.
-- - Lists are JSON in TEXT, where NULL means all and [] none.
-- - SERIAL, JSONB, now(), ALTER COLUMN and triggers differ between the databases and are not
--   used. The triggers are in store/sql_triggers.go.

-- +goose Up

-- A version is inserted once, even by concurrent migrations: the second transaction fails here
-- and is rolled back.
CREATE UNIQUE INDEX goose_db_version_once ON goose_db_version (version_id);

CREATE TABLE tenants (
    name             TEXT PRIMARY KEY,
    disabled         BIGINT NOT NULL DEFAULT 0,
    tiers            TEXT,
    models           TEXT,
    priority         TEXT NOT NULL,
    default_priority TEXT NOT NULL,
    rpm              BIGINT NOT NULL DEFAULT 0,
    rps              BIGINT NOT NULL DEFAULT 0,
    burst            BIGINT NOT NULL DEFAULT 0,
    tpm              BIGINT NOT NULL DEFAULT 0,
    token_burst      BIGINT NOT NULL DEFAULT 0,
    concurrent       BIGINT NOT NULL DEFAULT 0,
    day_tokens       BIGINT NOT NULL DEFAULT 0,
    month_tokens     BIGINT NOT NULL DEFAULT 0,
    day_money        BIGINT NOT NULL DEFAULT 0,
    month_money      BIGINT NOT NULL DEFAULT 0,
    isolate_cache    BIGINT NOT NULL DEFAULT 0,
    degrade          BIGINT NOT NULL DEFAULT 0,
    fail_closed      BIGINT NOT NULL DEFAULT 0,
    version          BIGINT NOT NULL DEFAULT 1,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL
);

-- Only the digest and the hint of a key are stored.
CREATE TABLE keys (
    id               TEXT PRIMARY KEY,
    tenant           TEXT NOT NULL REFERENCES tenants (name),
    name             TEXT NOT NULL DEFAULT '',
    hint             TEXT NOT NULL,
    digest           TEXT NOT NULL UNIQUE,
    tiers            TEXT,
    models           TEXT,
    priority         TEXT NOT NULL,
    default_priority TEXT NOT NULL,
    rpm              BIGINT NOT NULL DEFAULT 0,
    rps              BIGINT NOT NULL DEFAULT 0,
    burst            BIGINT NOT NULL DEFAULT 0,
    tpm              BIGINT NOT NULL DEFAULT 0,
    token_burst      BIGINT NOT NULL DEFAULT 0,
    concurrent       BIGINT NOT NULL DEFAULT 0,
    day_tokens       BIGINT NOT NULL DEFAULT 0,
    month_tokens     BIGINT NOT NULL DEFAULT 0,
    day_money        BIGINT NOT NULL DEFAULT 0,
    month_money      BIGINT NOT NULL DEFAULT 0,
    created_by       TEXT NOT NULL DEFAULT '',
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL DEFAULT 0,
    revoked_at       BIGINT NOT NULL DEFAULT 0,
    revoked_reason   TEXT NOT NULL DEFAULT '',
    last_used_at     BIGINT NOT NULL DEFAULT 0,
    replaced_by      TEXT NOT NULL DEFAULT '',
    version          BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX keys_of_tenant ON keys (tenant);

CREATE TABLE admins (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    role       TEXT NOT NULL,
    hint       TEXT NOT NULL,
    digest     TEXT NOT NULL UNIQUE,
    created_by TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE overrides (
    worker   TEXT PRIMARY KEY,
    weight   BIGINT,
    drain    BIGINT NOT NULL DEFAULT 0,
    made_by  TEXT NOT NULL DEFAULT '',
    made_at  BIGINT NOT NULL,
    until_at BIGINT NOT NULL DEFAULT 0
);

-- Ids begin with the time, so the primary key is in the order of time. It is the only index,
-- because each further one would cost every request.
CREATE TABLE ledger (
    id          TEXT PRIMARY KEY,
    request_id  TEXT NOT NULL,
    at          BIGINT NOT NULL,
    tenant      TEXT NOT NULL,
    key_id      TEXT NOT NULL,
    class       TEXT NOT NULL,
    route       TEXT NOT NULL,
    tier        TEXT NOT NULL,
    model       TEXT NOT NULL,
    worker      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    status      BIGINT NOT NULL,
    code        TEXT NOT NULL,
    attempts    BIGINT NOT NULL,
    prompt      BIGINT NOT NULL,
    cached      BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    money       BIGINT NOT NULL,
    estimated   BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL
);

-- The roll-up of the ledger by UTC day outlives the rows. It has few groups, because every name
-- in it comes from the gateway's own configuration.
CREATE TABLE usage (
    day       BIGINT NOT NULL,
    tenant    TEXT NOT NULL,
    key_id    TEXT NOT NULL,
    tier      TEXT NOT NULL,
    model     TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    requests  BIGINT NOT NULL,
    estimated BIGINT NOT NULL,
    prompt    BIGINT NOT NULL,
    cached    BIGINT NOT NULL,
    output    BIGINT NOT NULL,
    money     BIGINT NOT NULL,
    PRIMARY KEY (day, tenant, key_id, tier, model, outcome)
);
CREATE INDEX usage_of_tenant ON usage (tenant, day);

-- Append-only. Each hash covers the entry and the previous hash.
CREATE TABLE audit (
    id          BIGINT PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT NOT NULL,
    role        TEXT NOT NULL,
    via         TEXT NOT NULL,
    ip          TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    action      TEXT NOT NULL,
    target      TEXT NOT NULL,
    before_json TEXT NOT NULL,
    after_json  TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    hash        TEXT NOT NULL
);
CREATE INDEX audit_of_actor ON audit (actor, id);
CREATE INDEX audit_of_target ON audit (target, id);
CREATE INDEX audit_at ON audit (at);

-- One row. Every change locks it first, so changes are serialised. It holds the end of the
-- audit log, so that missing last entries are detected.
CREATE TABLE revision (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    number     BIGINT NOT NULL,
    audit_id   BIGINT NOT NULL,
    audit_hash TEXT NOT NULL
);
INSERT INTO revision (one, number, audit_id, audit_hash) VALUES (1, 0, 0, '');

-- +goose Down
DROP TABLE revision;
DROP TABLE audit;
DROP TABLE usage;
DROP TABLE ledger;
DROP TABLE overrides;
DROP TABLE admins;
DROP TABLE keys;
DROP TABLE tenants;
DROP INDEX goose_db_version_once;
