#!lua flags=no-writes
-- How many jobs are in each state, and how the queue is set.
-- KEYS    1 waiting  2 active  3 completed  4 failed  5 delayed  6 concurrency  7 meta  8 prefix of key lists
--         9 k:active  10 k:ready  11 k:limits  12 events  13 held  14 ranked  15 k:limited
-- ARGV    1 prefix of job keys
-- RETURN  { waiting, active, completed, failed, delayed, held, keys with waiting jobs, limit or '', mode or '',
--           keyConcurrency or '', paused 0|1, events or '', length of the stream, age of the oldest waiting job in ms
--           or -1, active jobs whose lease ran out }
local waiting, active, completed, failed, delayed, concurrency, meta, k_lists, k_active, k_ready, k_limits, events,
  held, ranked, k_limited = unpack(KEYS)
-- include parts/time.lua

local stored = redis.call('HMGET', meta, 'mode', 'keyConcurrency', 'paused', 'events')
local now, oldest = server_ms(), nil
local function look_at(id)
  local born = tonumber(redis.call('HGET', ARGV[1] .. id, 'createdAt') or '')
  if born and (not oldest or born < oldest) then oldest = born end
end

local waits, busy_keys = redis.call('LLEN', waiting) + redis.call('ZCARD', ranked), 0
for _, id in ipairs({redis.call('LINDEX', waiting, -1) or '', redis.call('ZRANGE', ranked, 0, 0)[1]}) do look_at(id) end
if stored[1] == 'keyed' or stored[1] == 'dynamic' then
  local seen = {}
  local function count(names)
    for _, key in ipairs(names) do
      local length = not seen[key] and redis.call('LLEN', k_lists .. key) or 0
      seen[key] = true
      if length > 0 then
        waits = waits + length
        busy_keys = busy_keys + 1
        look_at(redis.call('LINDEX', k_lists .. key, 0))
      end
    end
  end
  count(redis.call('ZRANGE', k_ready, 0, -1))
  count(redis.call('HKEYS', k_active))
  count(redis.call('HKEYS', k_limits))
  count(redis.call('ZRANGE', k_limited, 0, -1))
end
return {
  waits, redis.call('ZCARD', active), redis.call('ZCARD', completed), redis.call('ZCARD', failed),
  redis.call('ZCARD', delayed), redis.call('ZCARD', held), busy_keys, redis.call('HGET', concurrency, 'limit') or '', stored[1] or '',
  stored[2] or '', stored[3] and 1 or 0, stored[4] or '', redis.call('XLEN', events),
  oldest and math.max(0, now - oldest) or -1, redis.call('ZCOUNT', active, '-inf', now),
}
