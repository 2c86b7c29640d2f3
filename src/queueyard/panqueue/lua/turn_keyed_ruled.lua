#!lua flags=allow-oom
-- One turn of a worker in a keyed queue with a rate limit, of its own or per key: finish what succeeded, then claim.
-- Keyed and dynamic mode.
-- KEYS    1 prefix of key lists  2 k:active  3 k:ready  4 k:limits  5 active  6 completed  7 delayed  8 concurrency
--         9 meta  10 notify (channel)  11 finished (channel)  12 events  13 rate  14 prefix of k:rate  15 k:limited
-- ARGV    as in turn_keyed.lua
-- RETURN  as in turn_keyed.lua; due is also the ms until a rate limit lets the next job through
local k_lists, k_active, k_ready, k_limits, active, completed, delayed, concurrency, meta, notify, finished, events,
  rate_key, k_rates, k_limited = unpack(KEYS)
local prefix, want, lease, token, worker, keep, ttl, most = unpack(ARGV, 1, 8)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/waiting.lua

-- include parts/keyed_counts.lua
-- include parts/bucket.lua

call('ZCARD', k_limited)
local rate_text = call('GET', rate_key)
local rules = call('HMGET', meta, 'rateCount', 'rateMs', 'rateBurst', 'keyRateCount', 'keyRateMs', 'keyRateBurst')
local rate, key_rate = rate_from(rules, 1), rate_from(rules, 4)

-- A key may run as many more as it has tokens: `limit_of` says how many that makes with those that run.
local tokens_of, since_of, true_limit, met = {}, {}, {}, {}
local learn_counts = learn
learn = function(names)
  learn_counts(names)
  if not key_rate then return end
  local fresh, keys_of_fresh = {}, {}
  for _, key in ipairs(names) do
    if not tokens_of[key] then
      tokens_of[key] = 0
      fresh[#fresh + 1] = key
      keys_of_fresh[#fresh] = k_rates .. key
    end
  end
  if #fresh == 0 then return end
  local texts = call('MGET', unpack(keys_of_fresh))
  for i, key in ipairs(fresh) do
    tokens_of[key], since_of[key] = tokens_in(texts[i], key_rate)
    true_limit[key] = limit_of[key]
    met[#met + 1] = key
  end
end
local function budget(key) limit_of[key] = math.min(true_limit[key], count[key] + math.floor(tokens_of[key])) end

-- include parts/keyed_finish.lua

want = tonumber(want)
local asked, tokens, since = want, 0, now
if key_rate then
  local over = call('ZRANGE', k_limited, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', text_of(100 + 2 * want))
  if #over > 0 then
    call('ZREM', k_limited, unpack(over))
    learn(over)
    for _, key in ipairs(over) do
      if count[key] < true_limit[key] and waiting_of(key) > 0 then place(key) end
    end
    write_places()
  end
  for _, key in ipairs(met) do budget(key) end
  local learn_tokens = learn
  learn = function(names)
    local known = #met
    learn_tokens(names)
    for i = known + 1, #met do budget(met[i]) end
  end
end
if rate then
  tokens, since = tokens_in(rate_text, rate)
  if since > now then tokens = 0 end
  want = math.min(want, math.floor(tokens))
end
-- include parts/keyed_claim.lua

local wait = -1
local function wait_at_most(ms)
  if wait < 0 or ms < wait then wait = ms end
end
if rate and asked > want then
  if call('EXISTS', k_ready) == 1 then wait_at_most(ms_until_next(tokens - #claimed / 2, since, rate)) end
end
if rate and #claimed > 0 then keep_bucket(rate_key, tokens - #claimed / 2, rate) end
if key_rate then
  local taken, limited = {}, {}
  for i = 2, #claimed, 2 do
    local job = claimed[i]
    if job then taken[job[5]] = (taken[job[5]] or 0) + 1 end
  end
  for _, key in ipairs(met) do
    local rest = tokens_of[key] - (taken[key] or 0)
    if taken[key] then keep_bucket(k_rates .. key, rest, key_rate) end
    if rest < 1 and count[key] < true_limit[key] and waiting_of(key) > 0 then
      limited[#limited + 1] = text_of(now + ms_until_next(rest, since_of[key], key_rate))
      limited[#limited + 1] = key
    end
  end
  if #limited > 0 then call('ZADD', k_limited, unpack(limited)) end
  local first = call('ZRANGE', k_limited, 0, 0, 'WITHSCORES')
  if first[2] then wait_at_most(math.max(1, first[2] - now)) end
end
if wait >= 0 and #claimed / 2 < asked then due = due < 0 and wait or math.min(due, wait) end

-- include parts/keyed_write.lua
