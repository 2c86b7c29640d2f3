local now = server_ms()
local now_text = text_of(now)
local stored = call('HMGET', meta, 'paused', 'events')
local log = stored[2]

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
local held = call('ZCARD', active)
local limit = tonumber(call('HGET', concurrency, 'limit') or '')
call('LLEN', waiting)
call('ZCARD', delayed)
if keep == '1' then call('ZCARD', completed) end

local refused, ids, keys, done = {}, {}, {}, 0
local stride = keep == '1' and 3 or 2
for at = 9, #ARGV, stride do
  local id = ARGV[at]
  local key = prefix .. id
  if redis.pcall('HGET', key, 'lockToken') == ARGV[at + 1] then
    done = done + 1
    ids[done], keys[done] = id, key
    if log then tell(events, log, 'succeeded', id, call('HGET', key, 'runs'), worker) end
  else
    refused[#refused + 1] = (at - 9) / stride + 1
    refused[#refused + 1] = call('EXISTS', key)
  end
  if keep == '1' and ids[done] == id then
    call('HDEL', key, 'lockToken', 'leaseDeadline')
    if ARGV[at + 2] == '' then
      call('HSET', key, 'status', 'completed', 'finishedAt', now_text)
    else
      call('HSET', key, 'status', 'completed', 'finishedAt', now_text, 'result', ARGV[at + 2])
    end
  end
end
if done > 0 then
  held = held - call('ZREM', active, unpack(ids))
  if keep == '1' then
    local scored = {}
    for i = 1, done do scored[2 * i - 1], scored[2 * i] = now_text, ids[i] end
    call('ZADD', completed, unpack(scored))
    trim(completed, prefix, now, ttl, most, done + 100)
    call('PUBLISH', finished, table.concat(ids, '\n'))
  else
    call('DEL', unpack(keys))
  end
end
