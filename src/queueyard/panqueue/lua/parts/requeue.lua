-- Put a job where the workers take it from. Global mode: the back of the one list, as the public implementation does.
-- Keyed mode: the back of its key's list, or the front for work that had already begun. Needs: keyed, settle,
-- k_lists, waiting.
local function line_up(prefix, id, to_front)
  if not keyed then
    redis.call('LPUSH', waiting, id)
    return
  end
  local key = redis.call('HGET', prefix .. id, 'concurrencyKey') or ''
  redis.call(to_front and 'LPUSH' or 'RPUSH', k_lists .. key, id)
  settle(key)
end
