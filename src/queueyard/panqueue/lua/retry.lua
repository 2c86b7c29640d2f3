#!lua flags=allow-oom
-- Give failed jobs another chance: back in line, with their failures and stalls forgotten. Every mode.
-- KEYS    1 waiting  2 failed  3 meta  4 prefix of key lists  5 k:active  6 k:ready  7 k:limits  8 notify (channel)
--         9 events
-- ARGV    1 prefix of job keys  2 who  3 at most so many of all failed ones, oldest first; or 0 and  4... their ids
-- RETURN  of each job: its id and a code: 0 missing, 1 not failed, 2 waiting
local waiting, failed, meta, k_lists, k_active, k_ready, k_limits, notify, events = unpack(KEYS)
local prefix, actor, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include parts/events.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local log = redis.call('HGET', meta, 'events')
local ids = {}
if most > 0 then
  ids = redis.call('ZRANGE', failed, 0, most - 1)
else
  for at = 4, #ARGV do ids[#ids + 1] = ARGV[at] end
end
-- Where somebody else's data stands in the place of a list, the call fails here, before anything is written.
local groups = {}
for _, id in ipairs(ids) do
  groups[id] = keyed and redis.call('HGET', prefix .. id, 'concurrencyKey') or nil
  if groups[id] then redis.call('LLEN', k_lists .. groups[id]) end
end
local told = {}
for _, id in ipairs(ids) do
  local key = prefix .. id
  told[#told + 1] = id
  if not redis.call('ZSCORE', failed, id) then
    told[#told + 1] = redis.call('EXISTS', key)
  else
    redis.call('ZREM', failed, id)
    if redis.call('EXISTS', key) == 0 then
      told[#told + 1] = 0
    else
      redis.call('HDEL', key, 'finishedAt')
      redis.call('HSET', key, 'status', 'waiting', 'failures', 0, 'stalls', 0)
      line_up(prefix, id, false)
      tell(events, log, 'queued', id, redis.call('HGET', key, 'runs'), actor, 'retry', groups[id])
      told[#told + 1] = 2
    end
  end
end
if #ids > 0 then redis.call('PUBLISH', notify, '') end
return told
