#!lua
-- Add the jobs of due slots and move on to the next slot, in one step. Whoever comes second changes nothing. Every mode.
-- KEYS    1 schedules  2 schedule  3 waiting  4 meta  5 prefix of key lists  6 k:active  7 k:ready  8 k:limits
--         9 notify (channel)  10 events
-- ARGV    1 prefix of job keys  2 queue id  3 name  4 its revision as the caller read it  5 its next slot, likewise
--         6 the slot to go on with, or ''  7 the newest slot dealt with  8 payload  9 key or ''  10 maxRetries
--         11 maxStalls  12 opts, JSON or ''  13 priority  14... ids of the jobs to add, oldest first
-- RETURN  { 0 done, 1 somebody else was here or the slot is not due, 2 the key does not fit the mode; how many were
--         added }
local schedules, schedule, waiting, meta, k_lists, k_active, k_ready, k_limits, notify, events = unpack(KEYS)
local prefix, queue_id, name, revision, expected, next_slot, last, payload, group, max_retries, max_stalls, opts, priority =
  unpack(ARGV, 1, 13)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/keys.lua
-- include parts/requeue.lua

local now = server_ms()
local stored = redis.call('HMGET', schedule, 'revision', 'next', 'paused')
if stored[1] ~= revision or stored[2] ~= expected or stored[3] == '1' or tonumber(expected) > now then return {1, 0} end
if keyed ~= (group ~= '') then return {2, 0} end
if keyed then redis.call('LLEN', k_lists .. group) end

local log = redis.call('HGET', meta, 'events')
local added = 0
for at = 14, #ARGV do
  local id, key = ARGV[at], prefix .. ARGV[at]
  if redis.call('EXISTS', key) == 0 then
    redis.call('HSET', key, 'id', id, 'queueId', queue_id, 'payload', payload, 'status', 'waiting', 'runs', '0',
      'failures', '0', 'stalls', '0', 'maxRetries', max_retries, 'maxStalls', max_stalls, 'createdAt', text_of(now),
      'schedule', name)
    if keyed then redis.call('HSET', key, 'concurrencyKey', group) end
    if opts ~= '' then redis.call('HSET', key, 'opts', opts) end
    if priority ~= '0' then redis.call('HSET', key, 'priority', priority) end
    line_up(prefix, id, false)
    tell(events, log, 'queued', id, 1, 'schedule ' .. name, nil, keyed and group or nil)
    added = added + 1
  end
end
redis.call('HSET', schedule, 'next', next_slot, 'last', last)
redis.call('HINCRBY', schedule, 'fired', added)
redis.call('ZADD', schedules, next_slot == '' and '+inf' or next_slot, name)
if added > 0 then redis.call('PUBLISH', notify, '') end
return {0, added}
