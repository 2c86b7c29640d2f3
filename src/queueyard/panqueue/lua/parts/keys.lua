-- Keyed mode: who may run next. Every path that changes what a key has waiting or active ends in `settle`, which
-- holds the readiness invariant: a key is in the ready set if, and only if, it has a waiting job and a free slot.
-- Needs: k_lists (prefix of the lists), k_active, k_ready, k_limits, meta.
local key_mode = redis.call('HMGET', meta, 'mode', 'keyConcurrency')
local keyed = key_mode[1] == 'keyed' or key_mode[1] == 'dynamic'

local function key_limit(key)
  local own = key_mode[1] == 'dynamic' and redis.call('HGET', k_limits, key)
  return tonumber(own or key_mode[2] or 1)
end

-- nil where somebody else's data stands in the place of the list.
local function waiting_of(key)
  local length = redis.pcall('LLEN', k_lists .. key)
  return type(length) == 'number' and length or nil
end

-- `waits`: something was just put into its list, so nobody has to look.
local function settle(key, waits)
  local active = tonumber(redis.call('HGET', k_active, key) or 0)
  if active < key_limit(key) and (waits or (waiting_of(key) or 0) > 0) then
    if not redis.call('ZSCORE', k_ready, key) then
      redis.call('ZADD', k_ready, redis.call('HINCRBY', meta, 'seq', 1), key)
    end
  else
    redis.call('ZREM', k_ready, key)
  end
end

local function release(key)
  if redis.call('HINCRBY', k_active, key, -1) <= 0 then redis.call('HDEL', k_active, key) end
end
