#!lua
-- Add jobs, oldest first, all with the same options. Global mode.
-- KEYS    1 waiting  2 meta  3 notify (channel)  4 events
-- ARGV    1 prefix of job keys  2 queue id  3 maxRetries  4 maxStalls  5 opts, JSON or ''
--         6 ids: 0 made by the caller and unique, 1 given by a person and to be checked, 2 made here, short
--         7 who adds  8... id and payload of each job; with 6 = 2 the id is ignored
-- RETURN  0 and, with 6 = 2, the id of the first job; or
--         1 and the stored mode: the queue is not in global mode, nothing was added; or
--         2 and the positions (from 1) whose id is taken, nothing was added
local waiting, meta, notify, events = unpack(KEYS)
local prefix, queue_id, max_retries, max_stalls, opts, ids_from, actor = unpack(ARGV, 1, 7)
-- include parts/time.lua
-- include parts/events.lua

local stored = redis.call('HMGET', meta, 'mode', 'events')
if stored[1] and stored[1] ~= 'global' then return {1, stored[1]} end

local count = (#ARGV - 7) / 2
if ids_from == '1' then
  local taken = {}
  for i = 1, count do
    if redis.call('EXISTS', prefix .. ARGV[6 + 2 * i]) == 1 then taken[#taken + 1] = i end
  end
  if #taken > 0 then return {2, taken} end
end

local first = 0
local short = ids_from == '2'
if short then first = redis.call('HINCRBY', meta, 'ids', count) - count + 1 end

local now = text_of(server_ms())
local call = redis.call
local line = {}
for i = 1, count do
  line[i] = short and text_of(first + i - 1) or ARGV[6 + 2 * i]
end
-- The list first: if somebody else's data stands there, this fails before anything is written.
call('LPUSH', waiting, unpack(line))
for i = 1, count do
  local id, payload = line[i], ARGV[7 + 2 * i]
  local key = prefix .. id
  if short then
    call('HSET', key, 'id', id, 'queueId', queue_id, 'payload', payload, 'status', 'waiting', 'createdAt', now)
    if max_retries ~= '0' then call('HSET', key, 'maxRetries', max_retries) end
    if max_stalls ~= '5' then call('HSET', key, 'maxStalls', max_stalls) end
  else
    call('HSET', key, 'id', id, 'queueId', queue_id, 'payload', payload, 'status', 'waiting', 'runs', '0', 'failures',
      '0', 'stalls', '0', 'maxRetries', max_retries, 'maxStalls', max_stalls, 'createdAt', now)
  end
  if opts ~= '' then call('HSET', key, 'opts', opts) end
  if stored[2] then tell(events, stored[2], 'queued', id, 1, actor) end
end
call('PUBLISH', notify, line[count])
return {0, first}
