#!lua flags=allow-oom
-- Cancel jobs, whatever they are doing: one that runs loses its lease, and its handler is told. Every mode.
-- KEYS    1 waiting  2 active  3 failed  4 delayed  5 held  6 unplanted  7 ranked  8 expiry  9 meta
--         10 prefix of key lists  11 k:active  12 k:ready  13 k:limits  14 notify (channel)  15 finished (channel)
--         16 events
-- ARGV    1 prefix of job keys  2 who  3 why  4 keep failed jobs: 0 no, 1 yes  5 greatest age in ms or ''
--         6 greatest number or ''  7... ids
-- RETURN  one code per id: 0 missing, 1 already over, 2 canceled, 3 canceled while it ran
local waiting, active, failed, delayed, held, unplanted, ranked, expiry, meta, k_lists, k_active, k_ready, k_limits,
  notify, finished, events = unpack(KEYS)
local prefix, actor, why, keep, ttl, most = unpack(ARGV, 1, 6)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/finals.lua
-- include parts/keys.lua
local now = server_ms()
-- include parts/withdraw.lua

local log = redis.call('HGET', meta, 'events')
local codes, ended = {}, {}
for at = 7, #ARGV do
  local code = withdraw(prefix, ARGV[at], 'canceled', why, actor, log, keep, ttl, most)
  codes[#codes + 1] = code
  if code >= 2 then ended[#ended + 1] = ARGV[at] end
end
if #ended > 0 then
  redis.call('PUBLISH', finished, table.concat(ended, '\n'))
  redis.call('PUBLISH', notify, '')
end
return codes
