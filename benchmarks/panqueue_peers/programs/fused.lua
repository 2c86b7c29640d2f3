local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local ids, keys, n = {}, {}, 0
for at = 4, #ARGV, 2 do
  local key = KEYS[3] .. ARGV[at]
  if redis.call('HGET', key, 'lockToken') == ARGV[at + 1] then
    n = n + 1
    ids[n], keys[n] = ARGV[at], key
  end
end
if n > 0 then
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('DEL', unpack(keys))
end
local claimed, leases = {}, {}
local popped = ARGV[1] ~= '0' and redis.call('RPOP', KEYS[1], ARGV[1]) or {}
local deadline = string.format('%.0f', now + ARGV[2])
for i, id in ipairs(popped) do
  local key = KEYS[3] .. id
  claimed[2 * i - 1], claimed[2 * i] = id, redis.call('HMGET', key, 'payload', 'runs')
  redis.call('HSET', key, 'status', 'active', 'runs', '1', 'lastStartedAt', now, 'lockToken', ARGV[3], 'leaseDeadline', deadline)
  leases[2 * i - 1], leases[2 * i] = deadline, id
end
if #popped > 0 then redis.call('ZADD', KEYS[2], unpack(leases)) end
return {n, claimed}
