#!lua flags=allow-oom
-- Put running jobs off without spending a retry: their handlers said when to try again. Every mode.
-- KEYS    1 waiting  2 active  3 delayed  4 meta  5 prefix of key lists  6 k:active  7 k:ready  8 k:limits
--         9 notify (channel)  10 events  11 rate
-- ARGV    1 prefix of job keys  2 worker  3... of each job: id, token, why, the ms to wait, and whether nobody else may
--         start before: 0 no, 1 yes
-- RETURN  one code per job: 0 missing, 1 stale, 3 delayed
local waiting, active, delayed, meta, k_lists, k_active, k_ready, k_limits, notify, events, rate_key = unpack(KEYS)
local prefix, worker = ARGV[1], ARGV[2]
-- include parts/time.lua
-- include parts/events.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local log = redis.call('HGET', meta, 'events')
local codes = {}
redis.call('ZCARD', active)
redis.call('ZCARD', delayed)
redis.call('GET', rate_key)
for at = 3, #ARGV, 5 do
  local id, token, why, wait, everybody = unpack(ARGV, at, at + 4)
  local key = prefix .. id
  local job = redis.pcall('HMGET', key, 'lockToken', 'runs', 'concurrencyKey')
  if job.err or job[1] ~= token then
    codes[#codes + 1] = redis.call('EXISTS', key)
  else
    redis.call('ZREM', active, id)
    redis.call('HDEL', key, 'lockToken', 'leaseDeadline')
    redis.call('HSET', key, 'status', 'delayed', 'lastRequeuedAt', now, 'lastRequeueReason', why)
    redis.call('ZADD', delayed, now + wait, id)
    if keyed then
      release(job[3] or '')
      settle(job[3] or '')
    end
    if everybody == '1' then
      redis.call('SET', rate_key, '0 ' .. text_of(now + wait), 'PX', text_of(math.max(1, wait * 2)))
    end
    tell(events, log, 'released', id, job[2], worker, why, job[3])
    codes[#codes + 1] = 3
  end
end
redis.call('PUBLISH', notify, '')
return codes
