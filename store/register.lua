-- Keeps this gateway in the list of live gateways, by Redis's clock. It writes, so that a
-- server that only answers reads does not count as available.
-- KEYS 1: the list. ARGV 1: this gateway, 2: the lease in ms, 3: 1 to leave.
-- Returns the number of live gateways.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local kind = redis.call('TYPE', KEYS[1])
kind = type(kind) == 'table' and kind.ok or kind
if kind ~= 'zset' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
-- The write that needs memory comes first: after a script's first write, a Redis that is out of
-- memory no longer rejects its writes.
if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
-- An expiry beyond any lease comes from a wrong clock.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2]) + 60000), '+inf')
return redis.call('ZCARD', KEYS[1])
