#!lua
-- Add jobs that want a place of their own: later, by priority, once per key, with a time limit, in a flow. Every mode.
-- KEYS    1 waiting  2 delayed  3 expiry  4 held  5 unplanted  6 children  7 prefix of dedup keys  8 meta
--         9 prefix of key lists  10 k:active  11 k:ready  12 k:limits  13 notify (channel)  14 finished (channel)
--         15 events
-- ARGV    1 prefix of job keys  2 queue id  3 maxRetries  4 maxStalls  5 opts, JSON or ''
--         6 ids: 0 made by the caller and unique, 1 given by a person and to be checked, 2 made here, short
--         7 who adds  8 the caller takes the queue for keyed: 0 no, 1 yes
--         9 when: '' now, +ms from now, @ms since 1970  10 ms until a job that has not started fails, or ''
--         11 deduplication: '' none, unfinished, throttle, debounce  12 its key  13 its ms
--         14 how many further fields  15... name and text of each, then id, payload and key ('' in global mode) of each
--         job; a job with the field plan waits for its children, one with the field parent is told about
-- RETURN  0 and, with 6 = 2, the id of the first job; or
--         1 and the stored mode: not the one that the caller takes it for, nothing was added; or
--         2 and the positions (from 1) whose id is taken, nothing was added; or
--         3 and the id of the job that holds the deduplication key, nothing was added
local waiting, delayed, expiry, held, unplanted, children, dedups, meta, k_lists, k_active, k_ready, k_limits, notify,
  finished, events = unpack(KEYS)
local prefix, queue_id, max_retries, max_stalls, opts, ids_from, actor, wants_keyed, when, expires, rule, dedup_key,
  dedup_ms, more = unpack(ARGV, 1, 14)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/keys.lua
-- include parts/requeue.lua
if keyed ~= (wants_keyed == '1') then return {1, key_mode[1] or ''} end

local fields, special = {}, {}
for at = 15, 14 + 2 * more, 2 do
  fields[#fields + 1] = ARGV[at]
  fields[#fields + 1] = ARGV[at + 1]
  special[ARGV[at]] = ARGV[at + 1]
end
local start = 15 + 2 * more
local count = (#ARGV - start + 1) / 3
if ids_from == '1' then
  local taken = {}
  for i = 1, count do
    if redis.call('EXISTS', prefix .. ARGV[start + 3 * i - 3]) == 1 then taken[#taken + 1] = i end
  end
  if #taken > 0 then return {2, taken} end
end

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
for _, index in ipairs({delayed, expiry, held, unplanted}) do redis.call('ZCARD', index) end
redis.call('HLEN', children)
for i = 1, count do
  if keyed then redis.call('LLEN', k_lists .. ARGV[start + 3 * i - 1]) end
end

local log = redis.call('HGET', meta, 'events')
if rule ~= '' then
  local before = redis.call('GET', dedups .. dedup_key)
  local status = before and redis.call('HGET', prefix .. before, 'status')
  if rule == 'debounce' then
    if status == 'delayed' and redis.call('ZREM', delayed, before) == 1 then
      local group = redis.call('HGET', prefix .. before, 'concurrencyKey')
      redis.call('DEL', prefix .. before)
      redis.call('ZREM', expiry, before)
      redis.call('PUBLISH', finished, before)
      tell(events, log, 'canceled', before, 1, actor, 'debounced', group or nil)
    end
  elseif before and (rule == 'throttle' or status and status ~= 'completed' and status ~= 'failed') then
    return {3, before}
  end
end

local first = 0
local short = ids_from == '2'
if short then first = redis.call('HINCRBY', meta, 'ids', count) - count + 1 end

local now = server_ms()
local due = 0
if when ~= '' then
  due = tonumber(string.sub(when, 2))
  if string.sub(when, 1, 1) == '+' then due = now + due end
end
local now_text = text_of(now)
local status = special.plan and 'held' or due > now and 'delayed' or 'waiting'
local due_text, expiry_text = text_of(due), expires ~= '' and text_of(now + expires) or ''
-- What has a place in common is put there by one command at the end.
local line, scored = {}, {}
for i = 1, count do
  local at = start + 3 * i - 3
  local id = short and text_of(first + i - 1) or ARGV[at]
  local key, group = prefix .. id, keyed and ARGV[at + 2] or nil
  redis.call('HSET', key, 'id', id, 'queueId', queue_id, 'payload', ARGV[at + 1], 'status', status, 'runs', '0',
    'failures', '0', 'stalls', '0', 'maxRetries', max_retries, 'maxStalls', max_stalls, 'createdAt', now_text,
    unpack(fields))
  if group then redis.call('HSET', key, 'concurrencyKey', group) end
  if opts ~= '' then redis.call('HSET', key, 'opts', opts) end
  if status == 'held' then
    redis.call('ZADD', held, now_text, id)
    redis.call('ZADD', unplanted, now_text, id)
  elseif status == 'delayed' then
    scored[#scored + 1] = due_text
    scored[#scored + 1] = id
  elseif keyed then
    line_up(prefix, id, false)
  else
    line[#line + 1] = id
  end
  if special.parent then redis.call('HSET', children, id, special.parent) end
  if expires ~= '' then redis.call('ZADD', expiry, expiry_text, id) end
  if rule == 'throttle' then
    redis.call('SET', dedups .. dedup_key, id, 'PX', dedup_ms)
  elseif rule ~= '' then
    -- A key whose job ended long ago holds nobody up; it only must not stay for ever.
    redis.call('SET', dedups .. dedup_key, id, 'PX', text_of(604800000 + math.max(0, due - now)))
  end
  if log then tell(events, log, 'queued', id, 1, actor, nil, group) end
end
if #line > 0 then redis.call('LPUSH', waiting, unpack(line)) end
if #scored > 0 then redis.call('ZADD', delayed, unpack(scored)) end
-- Also for a delayed job: whoever waits must learn that something is due earlier than he thought.
redis.call('PUBLISH', notify, '')
return {0, first}
