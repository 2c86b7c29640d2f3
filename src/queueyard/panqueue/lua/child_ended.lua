#!lua flags=allow-oom
-- Keep what a job of a flow returned for the one that waits for it, before the job's own end is recorded; fenced.
-- KEYS    1 children
-- ARGV    1 prefix of job keys  2 id  3 token  4 result as JSON or ''
-- RETURN  0 missing, 1 stale or nobody waits for it, 2 kept
local children = KEYS[1]
local key = ARGV[1] .. ARGV[2]
if redis.pcall('HGET', key, 'lockToken') ~= ARGV[3] then return redis.call('EXISTS', key) end
local parent = redis.call('HGET', children, ARGV[2])
if not parent then return 1 end
-- Whoever was first counts: a run after a crash must not change what the parent may have read already.
if not string.find(parent, '\n', 1, true) then redis.call('HSET', children, ARGV[2], parent .. '\n' .. ARGV[4]) end
return 2
