-- Settles one request, or only renews this gateway's numbers of the subjects.
-- ARGV 3: tokens used minus tokens reserved, 4: 1 to return the request itself. Returns the two
-- windows of each subject.
local by, reply = tonumber(ARGV[3]), {}
for place = 1, #KEYS / 4 do
  local at = 4 + (place - 1) * width
  if by ~= 0 or ARGV[4] == '1' then
    local key = KEYS[place * 4 - 3]
    local found = buckets(key, at)
    if ARGV[4] == '1' then
      correct(found[1], -1)
      correct(found[2], -1)
    end
    if by ~= 0 then correct(found[3], by) end
    save(key, found)
  end
  if ARGV[at + 7] ~= '0' then
    local own, _, write = inflight(KEYS[place * 4 - 2], at)
    write(own)
  end
  local day, month = sums(place, at)
  append(reply, day)
  append(reply, month)
end
return reply
