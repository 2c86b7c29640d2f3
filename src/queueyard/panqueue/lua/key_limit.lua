#!lua flags=allow-oom
-- Give one key a limit of its own, or take it away again. Dynamic mode.
-- KEYS    1 prefix of key lists  2 k:active  3 k:ready  4 k:limits  5 meta  6 notify (channel)
-- ARGV    1 key  2 limit (0 stops the key), or '' for the queue's own
-- RETURN  0 done, 1 the queue is not in dynamic mode
local k_lists, k_active, k_ready, k_limits, meta, notify = unpack(KEYS)
local key, limit = ARGV[1], ARGV[2]
-- include parts/keys.lua
if key_mode[1] ~= 'dynamic' then return 1 end

if limit == '' then
  redis.call('HDEL', k_limits, key)
else
  redis.call('HSET', k_limits, key, limit)
end
settle(key)
redis.call('PUBLISH', notify, '')
return 0
