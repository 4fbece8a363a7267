-- Adds a stored response of a tenant, and returns 1 if two tenants have its id.
-- KEYS: 1 the response, 2 the tenant's index. Both, and all keys that are made from them, are in one slot.
-- ARGV: 1 the tenant, 2 the worker, 3 the lifetime in ms, 4 the largest number of responses in an index,
-- 5: 1 to change nothing that Redis knows of the tenant's response, 6: 1 if the gateway knows that two
-- tenants have the id. The tenant and the last part of each key are hashes of 32 digits.
-- The value is the version 1, a state, the tenant and the worker. State o: the tenant owns the response;
-- c: contested, two tenants have the id; d: deleted.
local function sibling(key, hash) return string.sub(key, 1, -33) .. hash end

local id, tenant, life = string.sub(KEYS[1], -32), ARGV[1], tonumber(ARGV[3])
local found = redis.pcall('GET', KEYS[1])
found = type(found) == 'string' and found or '' -- a key of another type is replaced
local state, owner = string.match(found, '^1:([ocd]):(%x+):')
if ARGV[5] == '1' and found ~= '' and (not owner or owner == tenant and ARGV[6] ~= '1') then
  return state == 'c' and 1 or 0
end
local former = state == 'd' and owner ~= tenant and owner
if not owner or state == 'd' then state, owner = 'o', tenant end
if owner ~= tenant or ARGV[6] == '1' then state = 'c' end

-- The write that needs memory comes first: after a script's first write, a Redis that is out of
-- memory no longer rejects its writes.
redis.call('SET', KEYS[1], '1:' .. state .. ':' .. owner .. ':' .. ARGV[2], 'PX', ARGV[3])
if former then redis.pcall('ZREM', sibling(KEYS[2], former), id) end
local index = sibling(KEYS[2], owner)
local kind = redis.call('TYPE', index)
kind = type(kind) == 'table' and kind.ok or kind
if kind ~= 'zset' and kind ~= 'none' then redis.call('DEL', index) end
-- In microseconds: entries of one millisecond would be ordered by their ids.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
redis.call('ZADD', index, string.format('%.0f', now), id)
redis.call('PEXPIRE', index, ARGV[3])
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('%.0f', now - life * 1000)) -- these have expired
local surplus = redis.call('ZCARD', index) - tonumber(ARGV[4])
if surplus > 0 then
  for _, oldest in ipairs(redis.call('ZRANGE', index, 0, surplus - 1)) do
    redis.call('DEL', sibling(KEYS[1], oldest))
    redis.call('ZREM', index, oldest)
  end
end
return state == 'c' and 1 or 0
