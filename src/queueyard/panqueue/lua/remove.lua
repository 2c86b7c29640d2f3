#!lua flags=allow-oom
-- Remove jobs that are not running. Every mode.
-- KEYS    1 waiting  2 active  3 completed  4 failed  5 delayed  6 meta  7 prefix of key lists  8 k:active  9 k:ready
--         10 k:limits  11 finished (channel)  12 events  13 ranked  14 held  15 unplanted  16 expiry
-- ARGV    1 prefix of job keys  2 who  3... ids
-- RETURN  one code per id: 0 missing, 1 active and therefore not removed, 2 removed
local waiting, active, completed, failed, delayed, meta, k_lists, k_active, k_ready, k_limits, finished, events,
  ranked, held, unplanted, expiry = unpack(KEYS)
local prefix, actor = ARGV[1], ARGV[2]
-- include parts/events.lua
-- include parts/keys.lua

local log = redis.call('HGET', meta, 'events')
local codes, gone = {}, {}
for at = 3, #ARGV do
  local id, key = ARGV[at], prefix .. ARGV[at]
  if redis.call('ZSCORE', active, id) then
    codes[#codes + 1] = 1
  else
    local group = redis.pcall('HGET', key, 'concurrencyKey')
    local ended = redis.call('ZREM', completed, id) + redis.call('ZREM', failed, id)
    local found = ended + redis.call('ZREM', delayed, id) + redis.call('ZREM', held, id) + redis.call('ZREM', ranked, id)
    redis.call('ZREM', unplanted, id)
    redis.call('ZREM', expiry, id)
    if found == 0 then
      if keyed and type(group) == 'string' then
        found = redis.call('LREM', k_lists .. group, 0, id)
        settle(group)
      else
        found = redis.call('LREM', waiting, 0, id)
      end
    end
    found = found + redis.call('DEL', key)
    codes[#codes + 1] = found > 0 and 2 or 0
    if found > 0 then
      gone[#gone + 1] = id
      tell(events, log, ended > 0 and 'deleted' or 'canceled', id, 1, actor, nil,
        type(group) == 'string' and group or nil)
    end
  end
end
if #gone > 0 then redis.call('PUBLISH', finished, table.concat(gone, '\n')) end
return codes
