-- Admits or refuses one request. Nothing is booked unless all limits of all subjects pass. ARGV
-- 3: the tokens to reserve, 4: 1 to ignore budgets.
-- Returns the number of the refusing limit (0: none), its subject counted from 0, the wait in
-- µs, and for each subject the used part of its three rates and its two windows.
local cost = tonumber(ARGV[3])
local refused, subject, longest, rank = 0, 0, 0, 7
local reply, book = {}, {}

local function refuse(limit, order, place, us)
  if order < rank or order == rank and us > longest then
    refused, subject, longest, rank = limit, place - 1, us, order
  end
end

for place = 1, #KEYS / 4 do
  local at = 4 + (place - 1) * width
  local day, month = sums(place, at)
  for i, sum in ipairs({ day[1], month[1], day[2], month[2] }) do
    local budget = ARGV[at + 11 + i]
    if budget ~= '0' and ARGV[4] ~= '1' and not less(sum, budget) then refuse(i, i - 1, place, 0) end
  end

  local key = KEYS[place * 4 - 3]
  local found = buckets(key, at)
  if found[3].used and cost > found[3].room then refuse(5, 4, place, 0) end
  local costs = { 1, 1, cost }
  for i, b in ipairs(found) do
    if b.used then
      local us = wait(b.used, costs[i], b.limit, b.period, b.room)
      if us > 0 then refuse(5 + i, 5, place, us) end
    end
  end

  local limit, own, others, write = tonumber(ARGV[at + 7]), 0, 0, nil
  if limit > 0 then
    own, others, write = inflight(KEYS[place * 4 - 2], at)
    if own + others >= limit then refuse(9, 6, place, 1e6) end
  end
  book[place] = function(admitted)
    if admitted then
      for i, b in ipairs(found) do correct(b, costs[i]) end
      save(key, found)
    end
    if write then write(admitted and own + 1 or own) end
    append(reply, { shown(found[1]), shown(found[2]), shown(found[3]) })
    append(reply, day)
    append(reply, month)
  end
end

for place = 1, #book do book[place](refused == 0) end
return { refused, subject, string.format('%.0f', longest), unpack(reply) }
