-- A token bucket: `count` tokens per `per` ms, at most `burst`. It stands in one key as "tokens ms" and is gone as soon
-- as it would be full again; a moment in the future means that nobody gets anything before. Needs: now, text_of.
local function rate_from(fields, first)
  local count = tonumber(fields[first] or '')
  return count and {count = count, per = tonumber(fields[first + 1]), burst = tonumber(fields[first + 2])} or nil
end
local function tokens_in(text, rate)
  local tokens, at = string.match(text or '', '^(%S+) (%S+)$')
  tokens, at = tonumber(tokens or ''), tonumber(at or '')
  if not tokens or not at then return rate.burst, now end
  return math.min(rate.burst, tokens + math.max(0, now - at) * rate.count / rate.per), at
end
local function ms_until_next(tokens, at, rate)
  return math.max(1, math.max(0, at - now) + math.ceil((1 - tokens) * rate.per / rate.count))
end
local function keep_bucket(key, tokens, rate)
  local full_in = math.ceil((rate.burst - tokens) * rate.per / rate.count)
  if full_in > 0 then
    redis.call('SET', key, string.format('%.6f %.0f', tokens, now), 'PX', text_of(full_in))
  else
    redis.call('DEL', key)
  end
end
