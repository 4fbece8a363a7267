-- Publishes this gateway's load and journal, and returns those of the others.
--
-- KEYS: the loads by gateway, and the log of journals.
-- ARGV: gateway, its load, lease of a load in ms, last entry of the log that it knows, ms for which the log keeps an
-- entry, most bytes to return, and the journal as pairs of pool and text.
--
-- Returns the last entry returned or skipped, whether more follow, the other gateways' loads as pairs, and the other
-- gateways' entries, each as its age in ms, its gateway and a list of pairs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gateway, lease, last, keep, most = ARGV[1], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

redis.call('HSET', KEYS[1], gateway, string.format('%.0f:', now) .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], lease)
if #ARGV > 6 then
  local entry = {'XADD', KEYS[2], 'MINID', '~', string.format('%.0f', math.max(0, now - keep)), '*', 'gateway', gateway}
  for i = 7, #ARGV do
    entry[#entry + 1] = ARGV[i]
  end
  redis.call(unpack(entry))
  redis.call('PEXPIRE', KEYS[2], keep)
end

local loads = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, load = string.match(all[i + 1], '^(%d+):(.*)$')
  if not at or math.abs(now - tonumber(at)) > lease then -- the clock may have gone back
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= gateway then
    loads[#loads + 1] = all[i]
    loads[#loads + 1] = load
  end
end

-- If the clock went back, new entries would follow the future ones, which no time would trim: the log begins again.
-- If the log is new, its entries may come before the last one that the gateway knows.
local function part(id, n) return tonumber(string.match(id, n == 1 and '^(%d+)' or '-(%d+)$')) end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if newest and part(newest[1], 1) > now + lease then
  redis.call('DEL', KEYS[2])
  last = '0-0'
elseif newest then
  local ms, known = part(newest[1], 1), part(last, 1)
  if ms < known or ms == known and part(newest[1], 2) < part(last, 2) then
    last = '0-0'
  end
end
local entries, bytes, more = {}, 0, 0
local found = redis.call('XRANGE', KEYS[2], '(' .. last, '+', 'COUNT', 32)
if #found == 32 then
  more = 1
end
for _, entry in ipairs(found) do
  if bytes >= most then
    more = 1
    break
  end
  last = entry[1]
  local fields = entry[2]
  if fields[2] ~= gateway then
    local texts = {}
    for i = 3, #fields do
      texts[#texts + 1] = fields[i]
      bytes = bytes + #fields[i]
    end
    entries[#entries + 1] = math.max(0, now - tonumber(string.match(last, '^(%d+)')))
    entries[#entries + 1] = fields[2]
    entries[#entries + 1] = texts
  end
end
return {last, more, loads, entries}
