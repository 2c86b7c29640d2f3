#!lua flags=allow-oom
-- Check the mode of a queue and, for a keyed one that is new, write it down. A queue without metadata that already
-- holds jobs is in global mode: the public implementation writes none.
-- KEYS    1 meta  2 waiting  3 active  4 delayed
-- ARGV    1 mode: global, keyed or dynamic  2 keyConcurrency, or '' to take what is stored
-- RETURN  { code, mode, keyConcurrency or '' }: 0 agreed, 1 the queue is in another mode,
--         2 the queue has another keyConcurrency
local meta, waiting, active, delayed = unpack(KEYS)
local mode, limit = ARGV[1], ARGV[2]

local stored = redis.call('HMGET', meta, 'mode', 'keyConcurrency')
if not stored[1] then
  local used = redis.call('EXISTS', waiting, active, delayed) > 0
  if mode == 'global' then return {0, 'global', ''} end
  if used then return {1, 'global', ''} end
  redis.call('HSET', meta, 'mode', mode, 'keyConcurrency', limit == '' and 1 or limit)
  return {0, mode, limit == '' and '1' or limit}
end
if stored[1] ~= mode then return {1, stored[1], stored[2] or ''} end
if mode ~= 'global' and limit ~= '' and stored[2] ~= limit then return {2, mode, stored[2] or ''} end
return {0, mode, stored[2] or ''}
