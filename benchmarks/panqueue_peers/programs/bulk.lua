local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local ids = {}
for at = 2, #ARGV, 2 do
  local id = ARGV[at]
  redis.call('HSET', KEYS[2] .. id, 'id', id, 'queueId', ARGV[1], 'payload', ARGV[at + 1], 'status', 'waiting', 'runs', '0',
    'failures', '0', 'stalls', '0', 'maxRetries', '0', 'maxStalls', '5', 'createdAt', now)
  ids[at / 2] = id
end
redis.call('LPUSH', KEYS[1], unpack(ids))
redis.call('PUBLISH', KEYS[3], '')
return #ids
