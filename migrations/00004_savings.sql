-- +goose Up

-- Requests that the response cache answered, and what it saved: the price of their answers without
-- what they cost.
ALTER TABLE usage ADD COLUMN cached_requests BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN saved BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE usage DROP COLUMN saved;
ALTER TABLE usage DROP COLUMN cached_requests;
