#!lua flags=allow-oom
-- Tell a job that waits for others how one of them ended; the last one lets it start. Telling twice does no harm.
-- KEYS    1 waiting  2 failed  3 held  4 unplanted  5 meta  6 prefix of key lists  7 k:active  8 k:ready  9 k:limits
--         10 notify (channel)  11 finished (channel)  12 events
-- ARGV    1 prefix of job keys  2 id of the one that waits  3 name of the one that ended  4 well: 0 no, 1 yes
--         5 its result as JSON or '', or why  6 on failure: fail, continue, ignore  7 who tells
--         8 keep failed jobs: 0 no, 1 yes  9 greatest age in ms or ''  10 greatest number or ''
-- RETURN  0 nobody waits, 1 it knew or no longer waits, 2 it waits for others, 3 it may start, 4 it failed
local waiting, failed, held, unplanted, meta, k_lists, k_active, k_ready, k_limits, notify, finished, events =
  unpack(KEYS)
local prefix, id, name, well, text, policy, actor, keep, ttl, most = unpack(ARGV)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/finals.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local key = prefix .. id
redis.call('ZCARD', held)
redis.call('ZCARD', unplanted)
redis.call('ZCARD', failed)
local job = redis.call('HMGET', key, 'status', 'concurrencyKey')
if not job[1] then return 0 end
if keyed and not may_line_up(job[2]) then return 2 end
if redis.call('HSETNX', key, 'kid:' .. name, (well == '1' and '+' or '-') .. text) == 0 then return 1 end
local pending = redis.call('HINCRBY', key, 'pending', -1)
if job[1] ~= 'held' then return 1 end

local log = redis.call('HGET', meta, 'events')
local group = keyed and job[2] or nil
if well == '0' and policy == 'fail' then
  local why = 'child ' .. name .. ' failed: ' .. text
  redis.call('ZREM', held, id)
  redis.call('ZREM', unplanted, id)
  redis.call('HSET', key, 'failureKind', 'child', 'failedReason', why, 'lastFailedAt', now)
  bury(failed, prefix, id, now, keep, ttl, most)
  redis.call('PUBLISH', finished, id)
  tell(events, log, 'failed', id, 1, actor, why, group)
  return 4
end
if pending > 0 and (well == '1' or policy ~= 'continue') then return 2 end
redis.call('ZREM', held, id)
redis.call('HSET', key, 'status', 'waiting')
line_up(prefix, id, false)
tell(events, log, 'released', id, 1, actor, nil, group)
redis.call('PUBLISH', notify, '')
return 3
