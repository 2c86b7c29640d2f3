#!lua flags=allow-oom
-- Remove a whole queue, a bounded number of jobs per call; the last call removes its settings too.
-- KEYS    1 waiting  2 active  3 completed  4 failed  5 delayed  6 concurrency  7 meta  8 prefix of key lists
--         9 k:active  10 k:ready  11 k:limits  12 events  13 ranked  14 held  15 expiry  16 unplanted
--         17 children  18 rate  19 k:limited  20 schedules  21 prefix of schedules
-- ARGV    1 prefix of job keys  2 at most so many  3 even if jobs are active: 0 no, 1 yes
-- RETURN  { code, how many jobs went }: 0 all is gone, 1 call again, 2 refused because jobs are active
local waiting, active, completed, failed, delayed, concurrency, meta, k_lists, k_active, k_ready, k_limits, events,
  ranked, held, expiry, unplanted, children, rate_key, k_limited, schedules, schedule = unpack(KEYS)
local prefix, most = ARGV[1], tonumber(ARGV[2])
if ARGV[3] == '0' and redis.call('EXISTS', active) == 1 then return {2, 0} end
-- Nothing is claimed while it goes.
redis.call('HSET', meta, 'paused', 1)

local gone = 0
local function take(ids)
  for _, id in ipairs(ids or {}) do
    gone = gone + 1
    redis.call('DEL', prefix .. id)
  end
end
for _, index in ipairs({active, completed, failed, delayed, ranked, held}) do
  local ids = redis.call('ZRANGE', index, 0, math.max(0, most - gone) - 1)
  if gone < most and #ids > 0 then
    redis.call('ZREM', index, unpack(ids))
    take(ids)
  end
end
if gone < most then take(redis.call('RPOP', waiting, most - gone)) end
for _, names in ipairs({redis.call('ZRANGE', k_ready, 0, -1), redis.call('HKEYS', k_active),
  redis.call('HKEYS', k_limits), redis.call('ZRANGE', k_limited, 0, -1)}) do
  for _, key in ipairs(names) do
    if gone < most then take(redis.call('LPOP', k_lists .. key, most - gone)) end
  end
end
if gone >= most then return {1, gone} end
for _, name in ipairs(redis.call('ZRANGE', schedules, 0, -1)) do redis.call('DEL', schedule .. name) end
redis.call('DEL', waiting, active, completed, failed, delayed, concurrency, meta, k_active, k_ready, k_limits, events,
  ranked, held, expiry, unplanted, children, rate_key, k_limited, schedules)
return {0, gone}
