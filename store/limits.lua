-- Shared by both scripts. The arithmetic equals that of tenants/bucket.go and
-- tenants/account.go, line by line.
--
-- KEYS, per subject: its rates, its requests in flight, its UTC day, its UTC month. All keys of
-- one tenant have one hash tag.
-- ARGV: 1 this gateway, 2 the lease in µs, 3 and 4 arguments of the script. Then per subject:
-- 1 rpm and 2 its capacity, 3 rps and 4 its capacity, 5 tpm and 6 its capacity, 7 concurrent;
-- 8 in flight, 9 pending, 10 ended and 11 sequence of this gateway;
-- 12 to 15 the budgets: tokens of the day, tokens of the month, money of the day, money of the
-- month;
-- 16 to 21 of the day, and 22 to 27 of the month: shared, own and confirmed, each in tokens
-- and money;
-- 28 to 30 the levels of the three rates, as this gateway admitted. If Redis has lost the state of a
-- subject, the subject starts from these levels.
local slack, horizon, minute, second = 1e-6, 60e6, 60e6, 1e6
local width = 30
local gateway, lease = ARGV[1], tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1e6 + tonumber(clock[2])

-- read returns the reply of a command on a hash. A key of another type is deleted, and the subject
-- continues from the state of the gateways.
local function read(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
    redis.call('DEL', key)
    found = redis.call(command, key, ...)
  end
  return found
end

local function decayed(used, at, limit, period)
  used, at = tonumber(used) or 0, tonumber(at) or 0
  if not (used >= 0 and used < 1e19) or not (at <= now + horizon) then return 0, now end
  local gone = math.max(0, now - at)
  return math.max(0, used - gone * limit / period), math.max(at, now)
end

local function wait(used, cost, limit, period, room)
  local over = used + math.min(cost, room) - room
  if over <= slack then return 0 end
  return math.min(math.ceil(over * period / limit), 4503599627370495)
end

-- buckets returns a subject's three buckets, leaked until now.
local function buckets(key, at)
  local found = { {}, {}, {} }
  local limits = { tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 5]) }
  if limits[1] + limits[2] + limits[3] == 0 then return found, false end
  local v = read('HMGET', key, 'r', 'ra', 's', 'sa', 't', 'ta')
  for i, b in ipairs(found) do
    b.limit, b.room, b.period = limits[i], tonumber(ARGV[at + 2 * i]), i == 2 and second or minute
    if b.limit > 0 then
      if v[2 * i - 1] then
        b.used, b.at = decayed(v[2 * i - 1], v[2 * i], b.limit, b.period)
      else
        b.used, b.at = tonumber(ARGV[at + 27 + i]), now
      end
    end
  end
  return found, true
end

-- save stores corrected buckets. They expire an hour after they are empty, so that a limit that is
-- lowered meanwhile applies to the used amount.
local function save(key, found)
  local fields, life = {}, 3600
  for i, name in ipairs({ 'r', 's', 't' }) do
    local b = found[i]
    if b.new then
      fields[#fields + 1] = name
      fields[#fields + 1] = string.format('%.17g', b.used)
      fields[#fields + 1] = name .. 'a'
      fields[#fields + 1] = string.format('%.0f', b.at)
      life = math.max(life, math.min(3600 + b.used * b.period / b.limit / 1e6, 1e8))
    end
  end
  if #fields > 0 then
    redis.call('HSET', key, unpack(fields))
    redis.call('EXPIRE', key, string.format('%.0f', life))
  end
end

local function correct(b, by)
  if b.used then b.used, b.new = math.max(0, b.used + by), true end
end

local function shown(b) return string.format('%.17g', b.used or 0) end

-- inflight returns the requests in flight on this gateway and on others, and a function that
-- stores this gateway's number. A gateway sends its requests in flight, the requests ended
-- since its start, and a sequence number. The newest message sets the number; older ones only
-- subtract ended requests. Messages may therefore be lost, repeated or reordered. A number that
-- is not renewed for a lease counts as 0.
local function inflight(key, at)
  local running, pending, ended, seq = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10]), tonumber(ARGV[at + 11])
  local others, own = 0, running
  local entries = read('HGETALL', key)
  for i = 1, #entries, 2 do
    local n, gone, number, expiry = string.match(entries[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    n, gone, number, expiry = tonumber(n), tonumber(gone), tonumber(number), tonumber(expiry)
    if not n or expiry <= now or expiry > now + lease + horizon then
      redis.call('HDEL', key, entries[i])
    elseif entries[i] ~= gateway then
      others = others + n
    else
      own = math.max(0, n - math.max(0, ended - gone))
      if seq > number then own = math.min(math.max(own, running), running + pending) end
      ended, seq = math.max(ended, gone), math.max(seq, number)
    end
  end
  return own, others, function(n)
    redis.call('HSET', key, gateway, string.format('%.0f %.0f %.0f %.0f', n, ended, seq, now + lease))
    redis.call('PEXPIRE', key, string.format('%.0f', lease / 1000))
  end
end

-- Amounts are decimal strings, because money exceeds the integers of a double. Redis adds them
-- (HINCRBY, in 64 bits); this script only compares them. An invalid amount, or one above 2^62,
-- is 0.
local function amount(v)
  if type(v) ~= 'string' or #v > 19 or not string.find(v, '^[1-9]%d*$') then return '0' end
  if #v == 19 and v > '4611686018427387904' then return '0' end
  return v
end

local function less(a, b) return #a < #b or #a == #b and a < b end

-- merged raises one sum to at least the last sum that this gateway received, and adds all amounts
-- that the gateway has settled and that the sum lacks. It returns the sum and this gateway's part.
local function merged(key, kind, was, counted, shared, own, confirmed, life)
  local sum, base, mine = amount(was), amount(counted), kind .. ':' .. gateway
  local changed = was and was ~= sum
  if less(base, confirmed) then base, changed = confirmed, true end
  if less(sum, shared) then sum, changed = shared, true end
  if changed then redis.call('HSET', key, kind, sum, mine, base) end
  if less(base, own) then
    redis.call('HINCRBY', key, kind, own)
    if base ~= '0' then redis.call('HINCRBY', key, kind, '-' .. base) end
    redis.call('HSET', key, mine, own)
    sum, base, changed = amount(redis.call('HGET', key, kind)), own, true
  end
  if changed then redis.call('EXPIRE', key, life) end
  return sum, base
end

-- spent returns the sums of one window in tokens and money, and this gateway's part of both.
local function spent(key, at, life)
  local v = read('HMGET', key, 'tokens', 'tokens:' .. gateway, 'money', 'money:' .. gateway)
  local tokens, ours = merged(key, 'tokens', v[1], v[2], ARGV[at], ARGV[at + 2], ARGV[at + 4], life)
  local money, own = merged(key, 'money', v[3], v[4], ARGV[at + 1], ARGV[at + 3], ARGV[at + 5], life)
  return { tokens, money, ours, own }
end

-- sums returns a subject's two windows, with zeros if it has no budgets. A window is kept two
-- days after its end, for requests that were admitted in it and are still in flight.
local function sums(place, at)
  if ARGV[at + 12] .. ARGV[at + 13] .. ARGV[at + 14] .. ARGV[at + 15] == '0000' then
    return { '0', '0', '0', '0' }, { '0', '0', '0', '0' }
  end
  return spent(KEYS[place * 4 - 1], at + 16, 3 * 86400), spent(KEYS[place * 4], at + 22, 33 * 86400)
end

local function append(list, values)
  for _, v in ipairs(values) do list[#list + 1] = v end
end
