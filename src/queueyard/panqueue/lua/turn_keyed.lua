#!lua flags=allow-oom
-- One turn of a worker: finish what succeeded, then claim as many jobs as it has free slots, one from each ready key in
-- turn, never more of a key than its limit. Keyed and dynamic mode.
-- KEYS    1 prefix of key lists  2 k:active  3 k:ready  4 k:limits  5 active  6 completed  7 delayed  8 concurrency
--         9 meta  10 notify (channel)  11 finished (channel)  12 events
-- ARGV    1 prefix of job keys  2 how many to claim  3 lease in ms  4 token of these claims  5 worker
--         6 keep completed jobs: 0 no, 1 yes  7 greatest age in ms or ''  8 greatest number or ''
--         9... of each finished job: id, token, key and, if kept, its result as JSON or ''
-- RETURN  { refused, claimed, due } as in turn.lua; behind opts each job has its concurrencyKey
local k_lists, k_active, k_ready, k_limits, active, completed, delayed, concurrency, meta, notify, finished, events =
  unpack(KEYS)
local prefix, want, lease, token, worker, keep, ttl, most = unpack(ARGV, 1, 8)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/waiting.lua

local now = server_ms()
local now_text = text_of(now)
local call = redis.call
local stored = call('HMGET', meta, 'paused', 'events', 'mode', 'keyConcurrency', 'seq')
local log, dynamic, common_limit = stored[2], stored[3] == 'dynamic', tonumber(stored[4] or 1)

-- What this call knows of each key; counts are read in bulk, changed here, and written back in bulk at the end.
local count, limit_of, changed = {}, {}, {}
local function learn(names)
  local unknown = {}
  for _, key in ipairs(names) do
    if not count[key] then
      count[key] = 0
      unknown[#unknown + 1] = key
    end
  end
  if #unknown == 0 then return end
  local counts = call('HMGET', k_active, unpack(unknown))
  local limits = dynamic and call('HMGET', k_limits, unpack(unknown)) or {}
  for i, key in ipairs(unknown) do
    count[key] = tonumber(counts[i]) or 0
    limit_of[key] = tonumber(limits[i]) or common_limit
  end
end
local function move(key, step)
  count[key] = count[key] + step
  if not changed[key] then
    changed[key] = true
    changed[#changed + 1] = key
  end
end

-- Keys that got a place in the ready set, in the order of their places. A key that has one keeps it.
local seq, placed = tonumber(stored[5]) or 0, {}
local function place(key)
  seq = seq + 1
  placed[#placed + 1] = text_of(seq)
  placed[#placed + 1] = key
end
local function write_places()
  if #placed > 0 then
    call('ZADD', k_ready, 'NX', unpack(placed))
    call('HSET', meta, 'seq', seq)
    placed = {}
  end
end

local function waiting_of(key)
  local length = redis.pcall('LLEN', k_lists .. key)
  -- Somebody else's data in the place of one key's list must not stop the others.
  return type(length) == 'number' and length or 0
end

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
call('ZCARD', active)
call('ZCARD', k_ready)
local busy = call('HLEN', k_active)
call('HLEN', k_limits)
call('ZCARD', delayed)
local limit = tonumber(call('HGET', concurrency, 'limit') or '')
if keep == '1' then call('ZCARD', completed) end

local refused, ids, keys, freed = {}, {}, {}, {}
local stride = keep == '1' and 4 or 3
for at = 9, #ARGV, stride do
  local job = prefix .. ARGV[at]
  local holder = redis.pcall('HGET', job, 'lockToken')
  if holder == ARGV[at + 1] then
    ids[#ids + 1] = ARGV[at]
    keys[#keys + 1] = job
    freed[#freed + 1] = ARGV[at + 2]
    if keep == '1' then
      call('HDEL', job, 'lockToken', 'leaseDeadline')
      if ARGV[at + 3] == '' then
        call('HSET', job, 'status', 'completed', 'finishedAt', now_text)
      else
        call('HSET', job, 'status', 'completed', 'finishedAt', now_text, 'result', ARGV[at + 3])
      end
    end
    if log then
      tell(events, log, 'succeeded', ARGV[at], call('HGET', job, 'runs'), worker, nil, ARGV[at + 2])
    end
  else
    refused[#refused + 1] = (at - 9) / stride + 1
    refused[#refused + 1] = call('EXISTS', job)
  end
end
if #ids > 0 then
  learn(freed)
  call('ZREM', active, unpack(ids))
  for _, key in ipairs(freed) do move(key, -1) end
  for _, key in ipairs(freed) do
    if count[key] < limit_of[key] and waiting_of(key) > 0 then place(key) end
  end
  write_places()
  if keep == '1' then
    local scored = {}
    for i, id in ipairs(ids) do
      scored[2 * i - 1] = now_text
      scored[2 * i] = id
    end
    call('ZADD', completed, unpack(scored))
    trim(completed, prefix, now, ttl, most, #ids + 100)
    call('PUBLISH', finished, table.concat(ids, '\n'))
  else
    call('DEL', unpack(keys))
  end
end

want = tonumber(want)
local claimed, due = {}, -1
local ready = {}
if want > 0 and not stored[1] then
  ready = call('ZRANGE', delayed, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', '100')
  if #ready > 0 then
    local woken = {}
    for _, id in ipairs(ready) do
      local key = call('HGET', prefix .. id, 'concurrencyKey') or ''
      if type(redis.pcall('RPUSH', k_lists .. key, id)) == 'number' then
        call('ZREM', delayed, id)
        mark_waiting(prefix .. id)
        woken[#woken + 1] = key
      else
        -- Somebody else's data stands in the place of this key's list: look again in a minute.
        call('ZADD', delayed, text_of(now + 60000), id)
      end
    end
    learn(woken)
    for _, key in ipairs(woken) do
      if count[key] < limit_of[key] then place(key) end
    end
    write_places()
  end

  local held = call('ZCARD', active)
  local free = limit and math.min(want, limit - held) or want
  local deadline, leases = text_of(now + lease), {}
  while free > 0 do
    local turns = call('ZPOPMIN', k_ready, free)
    if #turns == 0 then break end
    local names = {}
    for i = 1, #turns, 2 do names[#names + 1] = turns[i] end
    learn(names)
    for _, key in ipairs(names) do
      local id = count[key] < limit_of[key] and redis.pcall('LPOP', k_lists .. key)
      if type(id) == 'string' then
        claimed[#claimed + 1] = id
        local job = redis.pcall('HMGET', prefix .. id, 'payload', 'runs', 'failures', 'opts')
        if job.err or not job[1] then
          claimed[#claimed + 1] = false
        else
          job[5] = key
          claimed[#claimed + 1] = job
          move(key, 1)
          free = free - 1
          local runs = next_run(job[2])
          call('HSET', prefix .. id, 'status', 'active', 'runs', runs, 'lastStartedAt', now_text, 'lockToken', token,
            'leaseDeadline', deadline)
          leases[#leases + 1] = deadline
          leases[#leases + 1] = id
          if log then tell(events, log, 'started', id, runs, worker, nil, key) end
        end
        if count[key] < limit_of[key] and waiting_of(key) > 0 then place(key) end
      end
    end
    write_places()
  end
  if #leases > 0 then
    if held == 0 and #leases > 32 then
      -- As in turn.lua: one long member, gone again at once, makes a skip list of a flat array.
      local long = string.rep('-', 65)
      call('ZADD', active, deadline, long, unpack(leases))
      call('ZREM', active, long)
    else
      call('ZADD', active, unpack(leases))
    end
  end
  if #leases / 2 < want then
    local first = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if first[2] then due = math.max(1, first[2] - now) end
  end
end

local counts, idle = {}, {}
for _, key in ipairs(changed) do
  if count[key] > 0 then
    counts[#counts + 1] = key
    counts[#counts + 1] = count[key] == 1 and '1' or text_of(count[key])
  else
    idle[#idle + 1] = key
  end
end
if #counts > 0 then
  if busy == 0 and #counts > 32 then
    -- The same for the counts: a long field makes a table of a flat array.
    local long = string.rep('-', 65)
    call('HSET', k_active, long, '', unpack(counts))
    call('HDEL', k_active, long)
  else
    call('HSET', k_active, unpack(counts))
  end
end
if #idle > 0 then call('HDEL', k_active, unpack(idle)) end

if (#ready > 0 or #ids > 0) and not stored[1] and call('EXISTS', k_ready) == 1 then
  call('PUBLISH', notify, '')
end
return {refused, claimed, due}
