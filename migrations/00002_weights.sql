-- +goose Up

-- A tenant's share of the tokens while it waits beside others of its class.
ALTER TABLE tenants ADD COLUMN weight BIGINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE tenants DROP COLUMN weight;
