#!lua flags=allow-oom
-- One turn of a worker: finish what succeeded, then claim as many jobs as it has free slots. Global mode.
-- KEYS    1 waiting  2 active  3 completed  4 delayed  5 concurrency  6 meta  7 notify (channel)
--         8 finished (channel)  9 events
-- ARGV    1 prefix of job keys  2 how many to claim  3 lease in ms  4 token of these claims  5 worker
--         6 keep completed jobs: 0 no, 1 yes  7 greatest age in ms or ''  8 greatest number or ''
--         9... of each finished job: id, token and, if kept, its result as JSON or ''
-- RETURN  { refused, claimed, due }
--         refused: position (from 1) and code of each finish that does not count: 0 missing, 1 stale
--         claimed: of each job its id and { payload, runs, failures, opts }, the counters as before this claim;
--                  false instead of the list: there is no such job
--         due:     ms until the next delayed job, -1 where none is known to matter
-- Numbers are handed on as texts: turning one into a text costs more than some commands, and this is the hot path.
local waiting, active, completed, delayed, concurrency, meta, notify, finished, events = unpack(KEYS)
local prefix, want, lease, token, worker, keep, ttl, most = unpack(ARGV, 1, 8)
local call = redis.call
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/waiting.lua

local now = server_ms()
local now_text = text_of(now)
local stored = call('HMGET', meta, 'paused', 'events')
local log = stored[2]

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
local held = call('ZCARD', active)
local limit = tonumber(call('HGET', concurrency, 'limit') or '')
call('LLEN', waiting)
call('ZCARD', delayed)
if keep == '1' then call('ZCARD', completed) end

local refused, ids, keys, done = {}, {}, {}, 0
local stride = keep == '1' and 3 or 2
for at = 9, #ARGV, stride do
  local id = ARGV[at]
  local key = prefix .. id
  if redis.pcall('HGET', key, 'lockToken') == ARGV[at + 1] then
    done = done + 1
    ids[done], keys[done] = id, key
    if log then tell(events, log, 'succeeded', id, call('HGET', key, 'runs'), worker) end
  else
    refused[#refused + 1] = (at - 9) / stride + 1
    refused[#refused + 1] = call('EXISTS', key)
  end
  if keep == '1' and ids[done] == id then
    call('HDEL', key, 'lockToken', 'leaseDeadline')
    if ARGV[at + 2] == '' then
      call('HSET', key, 'status', 'completed', 'finishedAt', now_text)
    else
      call('HSET', key, 'status', 'completed', 'finishedAt', now_text, 'result', ARGV[at + 2])
    end
  end
end
if done > 0 then
  held = held - call('ZREM', active, unpack(ids))
  if keep == '1' then
    local scored = {}
    for i = 1, done do scored[2 * i - 1], scored[2 * i] = now_text, ids[i] end
    call('ZADD', completed, unpack(scored))
    trim(completed, prefix, now, ttl, most, done + 100)
    call('PUBLISH', finished, table.concat(ids, '\n'))
  else
    call('DEL', unpack(keys))
  end
end

want = tonumber(want)
local claimed, due = {}, -1
if want <= 0 and done == 0 or stored[1] then return {refused, claimed, due} end

local ready = call('ZRANGE', delayed, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', '100')
if #ready > 0 then
  call('ZREM', delayed, unpack(ready))
  call('LPUSH', waiting, unpack(ready))
  for _, id in ipairs(ready) do mark_waiting(prefix .. id) end
end

local free = limit and math.min(want, limit - held) or want
local popped = free > 0 and call('RPOP', waiting, free) or {}
if #popped > 0 then
  local deadline = text_of(now + lease)
  local leases, last = {}, 0
  for i, id in ipairs(popped) do
    local key = prefix .. id
    local job = redis.pcall('HMGET', key, 'payload', 'runs', 'failures', 'opts')
    claimed[2 * i - 1] = id
    if job.err or not job[1] then
      claimed[2 * i] = false
    else
      claimed[2 * i] = job
      local runs = next_run(job[2])
      call('HSET', key, 'status', 'active', 'runs', runs, 'lastStartedAt', now_text, 'lockToken', token,
        'leaseDeadline', deadline)
      leases[last + 1], leases[last + 2] = deadline, id
      last = last + 2
      if log then tell(events, log, 'started', id, runs, worker) end
    end
  end
  if held == 0 and last > 32 then
    -- A small sorted set is a flat array that is searched from its start. One long member turns it into a skip list
    -- for as long as it is not empty; it is gone again before anybody can see it.
    local long = string.rep('-', 65)
    call('ZADD', active, deadline, long, unpack(leases))
    call('ZREM', active, long)
  elseif last > 0 then
    call('ZADD', active, unpack(leases))
  end
end

if #popped < want then
  local first = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')
  if first[2] then due = math.max(1, first[2] - now) end
end
-- Others may have free slots for what is left: jobs that became due, or a slot of the common limit that we gave back.
if (#ready > 0 or limit and done > 0) and call('LLEN', waiting) > 0 then call('PUBLISH', notify, '') end
return {refused, claimed, due}
