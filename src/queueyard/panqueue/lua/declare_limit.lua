#!lua flags=allow-oom
-- Say how many jobs of the queue may be active at once, over all workers. The highest version wins.
-- KEYS    1 concurrency
-- ARGV    1 limit  2 version
-- RETURN  { code, limit in force }: 0 written, 1 unchanged, 2 ignored (a higher version is stored),
--         3 conflict (the same version says something else)
local concurrency = KEYS[1]
local limit, version = tonumber(ARGV[1]), tonumber(ARGV[2])

local stored = redis.call('HMGET', concurrency, 'limit', 'version')
local old_limit, old_version = tonumber(stored[1] or ''), tonumber(stored[2] or '')
if not old_limit or not old_version or version > old_version then
  redis.call('HSET', concurrency, 'limit', limit, 'version', version)
  return {0, limit}
elseif version < old_version then
  return {2, old_limit}
end
return {old_limit == limit and 1 or 3, old_limit}
