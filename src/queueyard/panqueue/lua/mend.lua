#!lua flags=allow-oom
-- Look for what no path of ours leaves behind, and put it right if asked to: ids without a job, and counts per key that
-- do not fit the active jobs. Both come from keys that somebody edited or deleted by hand.
-- KEYS    1 waiting  2 active  3 completed  4 failed  5 delayed  6 meta  7 prefix of key lists  8 k:active  9 k:ready
--         10 k:limits  11 ranked  12 held  13 unplanted
-- ARGV    1 prefix of job keys  2 look at so many of each state at most  3 mend: 0 no, 1 yes
-- RETURN  { ids without a job in waiting, active, completed, failed, delayed, ranked, held, unplanted, keys with a
--         wrong count }
local waiting, active, completed, failed, delayed, meta, k_lists, k_active, k_ready, k_limits, ranked, held,
  unplanted = unpack(KEYS)
local prefix, most, mending = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
-- include parts/keys.lua

local function without_job(ids)
  local lost = {}
  for _, id in ipairs(ids) do
    if redis.call('EXISTS', prefix .. id) == 0 then lost[#lost + 1] = id end
  end
  return lost
end

local found = {}
local lost = without_job(redis.call('LRANGE', waiting, 0, most - 1))
found[1] = #lost
if mending then
  for _, id in ipairs(lost) do redis.call('LREM', waiting, 0, id) end
end
for i, index in ipairs({active, completed, failed, delayed, ranked, held, unplanted}) do
  lost = without_job(redis.call('ZRANGE', index, 0, most - 1))
  found[i + 1] = #lost
  if mending then
    for _, id in ipairs(lost) do redis.call('ZREM', index, id) end
  end
end

found[9] = 0
if keyed then
  local counted = {}
  for _, id in ipairs(redis.call('ZRANGE', active, 0, -1)) do
    local key = redis.call('HGET', prefix .. id, 'concurrencyKey')
    if key then counted[key] = (counted[key] or 0) + 1 end
  end
  local stored = redis.call('HGETALL', k_active)
  for i = 1, #stored, 2 do
    local key = stored[i]
    if tonumber(stored[i + 1]) ~= counted[key] then
      found[9] = found[9] + 1
      if mending then
        if counted[key] then redis.call('HSET', k_active, key, counted[key]) else redis.call('HDEL', k_active, key) end
        settle(key)
      end
    end
    counted[key] = nil
  end
  for key, count in pairs(counted) do
    found[9] = found[9] + 1
    if mending then
      redis.call('HSET', k_active, key, count)
      settle(key)
    end
  end
end
return found
