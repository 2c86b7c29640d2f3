#!lua flags=allow-oom
-- Hand unfinished jobs back without spending a retry: a worker that stops. Every mode.
-- KEYS    1 waiting  2 active  3 meta  4 prefix of key lists  5 k:active  6 k:ready  7 k:limits  8 notify (channel)
--         9 events
-- ARGV    1 prefix of job keys  2 worker  3 why: shutdown, shutdown-timeout  4... id and token of each job
-- RETURN  one code per job: 0 missing, 1 stale (or its key's list is no list: its lease will run out), 2 waiting
local waiting, active, meta, k_lists, k_active, k_ready, k_limits, notify, events = unpack(KEYS)
local prefix, worker, why = unpack(ARGV, 1, 3)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local log = redis.call('HGET', meta, 'events')
local codes = {}
redis.call('ZCARD', active)
for at = 4, #ARGV, 2 do
  local id, key = ARGV[at], prefix .. ARGV[at]
  local job = redis.pcall('HMGET', key, 'lockToken', 'runs', 'concurrencyKey')
  if job.err or job[1] ~= ARGV[at + 1] or not may_line_up(job[3]) then
    codes[#codes + 1] = redis.call('EXISTS', key)
  else
    redis.call('ZREM', active, id)
    redis.call('HDEL', key, 'lockToken', 'leaseDeadline')
    redis.call('HSET', key, 'status', 'waiting', 'lastRequeuedAt', now, 'lastRequeueReason', why)
    if keyed then release(job[3] or '') end
    line_up(prefix, id, true)
    tell(events, log, 'released', id, job[2], worker, why, job[3])
    codes[#codes + 1] = 2
  end
end
redis.call('PUBLISH', notify, '')
return codes
