-- +goose Up

-- Answers to the tenant's requests may be kept, and it may be answered from them.
ALTER TABLE tenants ADD COLUMN response_cache BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tenants DROP COLUMN response_cache;
