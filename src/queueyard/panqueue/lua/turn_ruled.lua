#!lua flags=allow-oom
-- One turn of a worker in a queue with priorities or a rate limit: finish what succeeded, then claim. Global mode.
-- KEYS    1 waiting  2 active  3 completed  4 delayed  5 concurrency  6 meta  7 notify (channel)
--         8 finished (channel)  9 events  10 ranked  11 rate
-- ARGV    as in turn.lua
-- RETURN  as in turn.lua; due is also the ms until the rate limit lets the next job through
local waiting, active, completed, delayed, concurrency, meta, notify, finished, events, ranked, rate_key = unpack(KEYS)
local prefix, want, lease, token, worker, keep, ttl, most = unpack(ARGV, 1, 8)
local call = redis.call
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/waiting.lua

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
call('ZCARD', ranked)
local rate_text = call('GET', rate_key)
-- include parts/turn_finish.lua
-- include parts/bucket.lua

want = tonumber(want)
local claimed, due = {}, -1
if want <= 0 and done == 0 or stored[1] then return {refused, claimed, due} end

local ready = call('ZRANGE', delayed, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', '100')
if #ready > 0 then
  call('ZREM', delayed, unpack(ready))
  call('LPUSH', waiting, unpack(ready))
  for _, id in ipairs(ready) do mark_waiting(prefix .. id) end
end

local rules = call('HMGET', meta, 'ranked', 'rank', 'rateCount', 'rateMs', 'rateBurst')
local free = limit and math.min(want, limit - held) or want
local rate, tokens, since = rate_from(rules, 3), 0, now
if rate then
  tokens, since = tokens_in(rate_text, rate)
  if since > now then tokens = 0 end
  free = math.min(free, math.floor(tokens))
end

local popped = {}
if not rules[1] then
  popped = free > 0 and call('RPOP', waiting, free) or {}
else
  -- Everything that waits is put in order: by when it came, and each level of priority counts as so many microseconds
  -- earlier. Whoever comes later therefore never has to be compared again, and waiting counts by itself.
  local level, rank = tonumber(rules[1]), math.max(tonumber(rules[2]) or 0, now * 1000)
  local line = call('RPOP', waiting, 1000) or {}
  local scored = {}
  for i, id in ipairs(line) do
    rank = rank + 1
    local priority = redis.pcall('HGET', prefix .. id, 'priority')
    scored[2 * i - 1] = text_of(rank - (type(priority) == 'string' and tonumber(priority) or 0) * level)
    scored[2 * i] = id
  end
  if #line > 0 then
    call('ZADD', ranked, unpack(scored))
    call('HSET', meta, 'rank', text_of(rank))
  end
  local best = free > 0 and call('ZPOPMIN', ranked, free) or {}
  for i = 1, #best, 2 do popped[#popped + 1] = best[i] end
end
-- include parts/turn_claim.lua
if rate and #popped > 0 then
  tokens = tokens - #popped
  keep_bucket(rate_key, tokens, rate)
end

local left = call('LLEN', waiting) + call('ZCARD', ranked) > 0
if #popped < want then
  local first = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')
  if first[2] then due = math.max(1, first[2] - now) end
  if rate and left and tokens < 1 then
    local wait = ms_until_next(tokens, since, rate)
    due = due < 0 and wait or math.min(due, wait)
  end
end
if (#ready > 0 or limit and done > 0) and left then call('PUBLISH', notify, '') end
return {refused, claimed, due}
