#!lua
-- Add jobs, oldest first, each under its concurrency key. Keyed and dynamic mode.
-- KEYS    1 prefix of key lists  2 k:active  3 k:ready  4 k:limits  5 meta  6 notify (channel)  7 events
-- ARGV    1 prefix of job keys  2 queue id  3 maxRetries  4 maxStalls  5 opts, JSON or ''
--         6 ids: 0 made by the caller and unique, 1 given by a person and to be checked, 2 made here, short
--         7 who adds  8... id, payload and key of each job; with 6 = 2 the id is ignored
-- RETURN  0 and, with 6 = 2, the id of the first job; or
--         1 and the stored mode ('' if none): the queue is not keyed, nothing was added; or
--         2 and the positions (from 1) whose id is taken, nothing was added
local k_lists, k_active, k_ready, k_limits, meta, notify, events = unpack(KEYS)
local prefix, queue_id, max_retries, max_stalls, opts, ids_from, actor = unpack(ARGV, 1, 7)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/keys.lua
if not keyed then return {1, key_mode[1] or ''} end

local count = (#ARGV - 7) / 3
if ids_from == '1' then
  local taken = {}
  for i = 1, count do
    if redis.call('EXISTS', prefix .. ARGV[5 + 3 * i]) == 1 then taken[#taken + 1] = i end
  end
  if #taken > 0 then return {2, taken} end
end

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
redis.call('HLEN', k_active)
redis.call('ZCARD', k_ready)
redis.call('HLEN', k_limits)
local touched = {}
for i = 1, count do
  local key = ARGV[7 + 3 * i]
  if not touched[key] then
    redis.call('LLEN', k_lists .. key)
    touched[key] = true
    touched[#touched + 1] = key
  end
end

local first = 0
local short = ids_from == '2'
if short then first = redis.call('HINCRBY', meta, 'ids', count) - count + 1 end

local now = server_ms()
local log = redis.call('HGET', meta, 'events')
for i = 1, count do
  local id = short and (first + i - 1) or ARGV[5 + 3 * i]
  local payload, key = ARGV[6 + 3 * i], ARGV[7 + 3 * i]
  redis.call('RPUSH', k_lists .. key, id)
  if short then
    redis.call('HSET', prefix .. id, 'id', id, 'queueId', queue_id, 'payload', payload, 'status', 'waiting',
      'createdAt', now, 'concurrencyKey', key)
    if max_retries ~= '0' then redis.call('HSET', prefix .. id, 'maxRetries', max_retries) end
    if max_stalls ~= '5' then redis.call('HSET', prefix .. id, 'maxStalls', max_stalls) end
  else
    redis.call('HSET', prefix .. id, 'id', id, 'queueId', queue_id, 'payload', payload, 'status', 'waiting',
      'runs', 0, 'failures', 0, 'stalls', 0, 'maxRetries', max_retries, 'maxStalls', max_stalls, 'createdAt', now,
      'concurrencyKey', key)
  end
  if opts ~= '' then redis.call('HSET', prefix .. id, 'opts', opts) end
  tell(events, log, 'queued', id, 1, actor, nil, key)
end
for _, key in ipairs(touched) do settle(key, true) end
redis.call('PUBLISH', notify, '')
return {0, first}
