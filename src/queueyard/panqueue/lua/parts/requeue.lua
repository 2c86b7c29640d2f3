-- Put a job where the workers take it from. Global mode: the back of the one list, as the public implementation does.
-- Keyed mode: the back of its key's list, or the front for work that had already begun. Needs: keyed, settle,
-- waiting_of, k_lists, waiting. `may_line_up` is asked first: where somebody else's data stands in the place of a list, the job must
-- stay where it is.
redis.call('LLEN', waiting)
if keyed then
  redis.call('HLEN', k_active)
  redis.call('ZCARD', k_ready)
  redis.call('HLEN', k_limits)
end
local function may_line_up(key)
  return not keyed or waiting_of(key or '') ~= nil
end
local function line_up(prefix, id, to_front)
  if not keyed then
    redis.call('LPUSH', waiting, id)
    return
  end
  local key = redis.call('HGET', prefix .. id, 'concurrencyKey') or ''
  redis.call(to_front and 'LPUSH' or 'RPUSH', k_lists .. key, id)
  settle(key, true)
end
