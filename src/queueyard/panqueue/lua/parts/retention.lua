-- Evict finished jobs: first those older than `ttl` ms, then the oldest beyond `count`; '' means no such bound.
-- At most `most` of each, so that no call runs for long. Gives how many went.
local function trim(index, prefix, now, ttl, count, most)
  local evicted = 0
  local function evict(ids)
    if #ids > 0 then
      local keys = {}
      for i, id in ipairs(ids) do keys[i] = prefix .. id end
      redis.call('ZREM', index, unpack(ids))
      redis.call('DEL', unpack(keys))
      evicted = evicted + #ids
    end
  end
  if ttl ~= '' then
    evict(redis.call('ZRANGE', index, '-inf', now - ttl, 'BYSCORE', 'LIMIT', 0, most))
  end
  if count ~= '' then
    local surplus = math.min(redis.call('ZCARD', index) - count, most)
    if surplus > 0 then evict(redis.call('ZRANGE', index, 0, surplus - 1)) end
  end
  return evicted
end
