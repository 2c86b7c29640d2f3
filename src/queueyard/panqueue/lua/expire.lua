#!lua flags=allow-oom
-- Let jobs fail that had not started when their time was over; a bounded number per call. Every mode.
-- KEYS    1 waiting  2 active  3 failed  4 delayed  5 held  6 unplanted  7 ranked  8 expiry  9 meta
--         10 prefix of key lists  11 k:active  12 k:ready  13 k:limits  14 notify (channel)  15 finished (channel)
--         16 events
-- ARGV    1 prefix of job keys  2 who  3 at most so many  4 keep failed jobs: 0 no, 1 yes  5 greatest age in ms or ''
--         6 greatest number or ''
-- RETURN  how many were looked at; fewer than asked for: none are left
local waiting, active, failed, delayed, held, unplanted, ranked, expiry, meta, k_lists, k_active, k_ready, k_limits,
  notify, finished, events = unpack(KEYS)
local prefix, actor, batch, keep, ttl, most = unpack(ARGV, 1, 6)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/finals.lua
-- include parts/keys.lua
local now = server_ms()
-- include parts/withdraw.lua

local log = redis.call('HGET', meta, 'events')
local ended = {}
local over = redis.call('ZRANGE', expiry, '-inf', text_of(now), 'BYSCORE', 'LIMIT', '0', batch)
for _, id in ipairs(over) do
  local runs = redis.pcall('HGET', prefix .. id, 'runs')
  -- One that has started once is no longer waiting to start, even if it waits for another attempt.
  if runs == '0' and withdraw(prefix, id, 'expired', 'expired before it started', actor, log, keep, ttl, most) >= 2 then
    ended[#ended + 1] = id
  end
  redis.call('ZREM', expiry, id)
end
if #ended > 0 then redis.call('PUBLISH', finished, table.concat(ended, '\n')) end
return #over
