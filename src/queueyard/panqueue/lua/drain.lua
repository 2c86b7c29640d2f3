#!lua flags=allow-oom
-- Remove jobs that wait or are delayed, oldest first, a bounded number per call. Every mode.
-- KEYS    1 waiting  2 delayed  3 meta  4 prefix of key lists  5 k:active  6 k:ready  7 k:limits  8 finished (channel)
--         9 events  10 ranked  11 k:limited
-- ARGV    1 prefix of job keys  2 who  3 at most so many  4 delayed ones too: 0 no, 1 yes
-- RETURN  how many went; fewer than asked for: none are left
local waiting, delayed, meta, k_lists, k_active, k_ready, k_limits, finished, events, ranked,
  k_limited = unpack(KEYS)
local prefix, actor, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include parts/events.lua
-- include parts/keys.lua

local log = redis.call('HGET', meta, 'events')
local gone = {}
local function take(ids)
  for _, id in ipairs(ids or {}) do
    gone[#gone + 1] = id
    redis.call('DEL', prefix .. id)
    tell(events, log, 'canceled', id, 1, actor, 'drained')
  end
end

if keyed then
  for _, names in ipairs({redis.call('ZRANGE', k_ready, 0, -1), redis.call('HKEYS', k_active),
    redis.call('HKEYS', k_limits), redis.call('ZRANGE', k_limited, 0, -1)}) do
    for _, key in ipairs(names) do
      if #gone < most then
        take(redis.call('LPOP', k_lists .. key, most - #gone))
        settle(key)
      end
    end
  end
else
  local ids, best = {}, redis.call('ZPOPMIN', ranked, most)
  for i = 1, #best, 2 do ids[#ids + 1] = best[i] end
  take(ids)
  if #gone < most then take(redis.call('RPOP', waiting, most - #gone)) end
end
if ARGV[4] == '1' and #gone < most then
  local ids = redis.call('ZRANGE', delayed, 0, most - #gone - 1)
  if #ids > 0 then
    redis.call('ZREM', delayed, unpack(ids))
    take(ids)
  end
end
if #gone > 0 then redis.call('PUBLISH', finished, table.concat(gone, '\n')) end
return #gone
