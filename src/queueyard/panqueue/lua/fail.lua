#!lua flags=allow-oom
-- Record that handlers failed: back in line, back in line later, or failed for good. Every mode.
-- KEYS    1 waiting  2 active  3 failed  4 delayed  5 meta  6 prefix of key lists  7 k:active  8 k:ready  9 k:limits
--         10 notify (channel)  11 finished (channel)  12 events
-- ARGV    1 prefix of job keys  2 worker  3 keep failed jobs: 0 no, 1 yes  4 greatest age in ms or ''
--         5 greatest number or ''  6... of each job: id, token, why, and the ms to wait before the next attempt, or -1
--         for no further attempt whatever its maxRetries
-- RETURN  one code per job: 0 missing, 1 stale, 2 waiting, 3 delayed, 4 failed
local waiting, active, failed, delayed, meta, k_lists, k_active, k_ready, k_limits, notify, finished, events =
  unpack(KEYS)
local prefix, worker, keep, ttl, most = unpack(ARGV, 1, 5)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/finals.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local log = redis.call('HGET', meta, 'events')
local codes, ended = {}, {}
for _, touched in ipairs({active, failed, delayed}) do redis.call('ZCARD', touched) end

local function fail(id, token, why, wait_ms)
  local key = prefix .. id
  local job = redis.pcall('HMGET', key, 'lockToken', 'failures', 'maxRetries', 'runs', 'concurrencyKey')
  if job.err or not job[1] then return redis.call('EXISTS', key) end
  if job[1] ~= token then return 1 end

  -- Later, if its key's list is no list just now.
  if wait_ms == 0 and not may_line_up(job[5]) then wait_ms = 60000 end
  local failures = (tonumber(job[2]) or 0) + 1
  redis.call('ZREM', active, id)
  redis.call('HDEL', key, 'lockToken', 'leaseDeadline')
  redis.call('HSET', key, 'failures', failures, 'failureKind', 'handler', 'failedReason', why, 'lastError', why,
    'lastFailedAt', now)
  if keyed then release(job[5] or '') end

  if wait_ms < 0 or failures > (tonumber(job[3]) or 0) then
    bury(failed, prefix, id, now, keep, ttl, most)
    ended[#ended + 1] = id
    if keyed then settle(job[5] or '') end
    tell(events, log, 'failed', id, job[4], worker, why, job[5])
    return 4
  end
  -- The event names the attempt that it asks for, not the one that failed.
  tell(events, log, 'retried', id, (tonumber(job[4]) or 0) + 1, worker, why, job[5])
  if wait_ms > 0 then
    redis.call('HSET', key, 'status', 'delayed')
    redis.call('ZADD', delayed, now + wait_ms, id)
    if keyed then settle(job[5] or '') end
    return 3
  end
  redis.call('HSET', key, 'status', 'waiting')
  line_up(prefix, id, false)
  return 2
end

for at = 6, #ARGV, 4 do
  codes[#codes + 1] = fail(ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]))
end
if #ended > 0 then redis.call('PUBLISH', finished, table.concat(ended, '\n')) end
-- A message too many wakes a worker for nothing; one too few leaves a job lying until the next poll.
redis.call('PUBLISH', notify, '')
return codes
