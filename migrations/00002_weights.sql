-- +goose Up

-- A tenant's share of the tokens while requests of several tenants of its class wait.
ALTER TABLE tenants ADD COLUMN weight BIGINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE tenants DROP COLUMN weight;
