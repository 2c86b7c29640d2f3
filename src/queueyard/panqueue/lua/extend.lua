#!lua flags=allow-oom
-- Renew leases, each fenced by its token.
-- KEYS    1 active
-- ARGV    1 prefix of job keys  2 lease in ms  3... id and token of each job
-- RETURN  one code per job: 0 missing, 1 stale, 2 extended
local active = KEYS[1]
local prefix, lease = ARGV[1], ARGV[2]
-- include parts/time.lua

local deadline = server_ms() + lease
local codes = {}
for at = 3, #ARGV, 2 do
  local id, key = ARGV[at], prefix .. ARGV[at]
  local holder = redis.pcall('HGET', key, 'lockToken')
  if holder ~= ARGV[at + 1] then
    codes[#codes + 1] = redis.call('EXISTS', key)
  elseif not redis.call('ZSCORE', active, id) then
    codes[#codes + 1] = 1
  else
    redis.call('ZADD', active, 'XX', deadline, id)
    redis.call('HSET', key, 'leaseDeadline', deadline)
    codes[#codes + 1] = 2
  end
end
return codes
