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

-- include parts/turn_finish.lua

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
-- include parts/turn_claim.lua

if #popped < want then
  local first = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')
  if first[2] then due = math.max(1, first[2] - now) end
end
-- Others may have free slots for what is left: jobs that became due, or a slot of the common limit that we gave back.
if (#ready > 0 or limit and done > 0) and call('LLEN', waiting) > 0 then call('PUBLISH', notify, '') end
return {refused, claimed, due}
