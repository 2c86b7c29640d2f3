#!lua flags=allow-oom
-- Sweep: take back jobs whose lease ran out. Any number of sweeps at once is harmless. Every mode.
-- KEYS    1 waiting  2 active  3 failed  4 meta  5 prefix of key lists  6 k:active  7 k:ready  8 k:limits
--         9 notify (channel)  10 finished (channel)  11 events
-- ARGV    1 prefix of job keys  2 who sweeps  3 at most so many  4 keep failed jobs: 0 no, 1 yes
--         5 greatest age in ms or ''  6 greatest number or ''
-- RETURN  of each job: outcome (2 waiting, 4 failed, 5 corrupt), id, and its fields as they were after the sweep
local waiting, active, failed, meta, k_lists, k_active, k_ready, k_limits, notify, finished, events = unpack(KEYS)
local prefix, actor, batch, keep, ttl, most = unpack(ARGV, 1, 6)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/finals.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local log = redis.call('HGET', meta, 'events')
local why = 'stalled: lease expired'
local told, ended, any = {}, {}, false
redis.call('ZCARD', failed)

for _, id in ipairs(redis.call('ZRANGE', active, '-inf', now, 'BYSCORE', 'LIMIT', 0, batch)) do
  local key = prefix .. id
  local job = redis.pcall('HMGET', key, 'id', 'stalls', 'maxStalls', 'runs', 'concurrencyKey')
  if job.err or not job[1] then
    redis.call('ZREM', active, id)
    told[#told + 1] = {5, id, {}}
    any = true
  elseif may_line_up(job[5]) then
    any = true
    redis.call('ZREM', active, id)
    local stalls = (tonumber(job[2]) or 0) + 1
    redis.call('HDEL', key, 'lockToken', 'leaseDeadline')
    redis.call('HSET', key, 'stalls', stalls, 'failureKind', 'stalled', 'failedReason', why, 'lastStalledAt', now)
    if keyed then release(job[5] or '') end
    tell(events, log, 'stalled', id, job[4], actor, why, job[5])
    if stalls <= (tonumber(job[3]) or 5) then
      redis.call('HSET', key, 'status', 'waiting')
      told[#told + 1] = {2, id, redis.call('HGETALL', key)}
      line_up(prefix, id, true)
    else
      redis.call('HSET', key, 'status', 'failed', 'finishedAt', now)
      told[#told + 1] = {4, id, redis.call('HGETALL', key)}
      bury(failed, prefix, id, now, keep, ttl, most)
      ended[#ended + 1] = id
      if keyed then settle(job[5] or '') end
      tell(events, log, 'failed', id, job[4], actor, why, job[5])
    end
  end
end
if #ended > 0 then redis.call('PUBLISH', finished, table.concat(ended, '\n')) end
if any then redis.call('PUBLISH', notify, '') end
return told
