-- +goose Up

-- The number of the revision that last changed the row. Gateways read the rows since a revision. The triggers that set
-- it, also for changes by the release before, are in store/sql_triggers.go.
ALTER TABLE tenants ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
CREATE INDEX tenants_revision ON tenants (revision, name);
CREATE INDEX keys_revision ON keys (revision, id);

-- Keys that may have lost their rights. They are read before others.
CREATE INDEX keys_ending ON keys (revision) WHERE revoked_at > 0 OR expires_at > 0;

-- Deleted tenants and keys, so that gateways remove them. key_id is empty for a tenant. The marks up to revision.pruned
-- were deleted: a gateway that has not read them begins again.
CREATE TABLE deletions (
    tenant   TEXT NOT NULL,
    key_id   TEXT NOT NULL,
    revision BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (tenant, key_id)
);
CREATE INDEX deletions_revision ON deletions (revision);
CREATE INDEX deletions_at ON deletions (at);
ALTER TABLE revision ADD COLUMN pruned BIGINT NOT NULL DEFAULT 0;

-- +goose Down
-- Nothing: the release before works with these additions, and the triggers need them.
