-- Marks a tenant's stored response as deleted. Otherwise the gateway that created the response would
-- still find it in its own memory. The mark stays in the tenant's index, which bounds the number of marks.
-- KEYS 1: the response. ARGV 1: the tenant.
local found = redis.pcall('GET', KEYS[1])
local owner = type(found) == 'string' and string.match(found, '^1:o:(%x+):')
if owner == ARGV[1] then redis.call('SET', KEYS[1], '1:d:' .. owner .. ':', 'KEEPTTL') end
return 0
