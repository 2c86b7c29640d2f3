-- Keys that got a place in the ready set, in the order of their places. A key that has one keeps it.
local seq, placed = tonumber(stored[5]) or 0, {}
local function place(key)
  seq = seq + 1
  placed[#placed + 1] = text_of(seq)
  placed[#placed + 1] = key
end
local function write_places()
  if #placed > 0 then
    call('ZADD', k_ready, 'NX', unpack(placed))
    call('HSET', meta, 'seq', seq)
    placed = {}
  end
end

local function waiting_of(key)
  local length = redis.pcall('LLEN', k_lists .. key)
  -- Somebody else's data in the place of one key's list must not stop the others.
  return type(length) == 'number' and length or 0
end

-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
call('ZCARD', active)
call('ZCARD', k_ready)
local busy = call('HLEN', k_active)
call('HLEN', k_limits)
call('ZCARD', delayed)
local limit = tonumber(call('HGET', concurrency, 'limit') or '')
if keep == '1' then call('ZCARD', completed) end

local refused, ids, keys, freed = {}, {}, {}, {}
local stride = keep == '1' and 4 or 3
for at = 9, #ARGV, stride do
  local job = prefix .. ARGV[at]
  local holder = redis.pcall('HGET', job, 'lockToken')
  if holder == ARGV[at + 1] then
    ids[#ids + 1] = ARGV[at]
    keys[#keys + 1] = job
    freed[#freed + 1] = ARGV[at + 2]
    if keep == '1' then
      call('HDEL', job, 'lockToken', 'leaseDeadline')
      if ARGV[at + 3] == '' then
        call('HSET', job, 'status', 'completed', 'finishedAt', now_text)
      else
        call('HSET', job, 'status', 'completed', 'finishedAt', now_text, 'result', ARGV[at + 3])
      end
    end
    if log then
      tell(events, log, 'succeeded', ARGV[at], call('HGET', job, 'runs'), worker, nil, ARGV[at + 2])
    end
  else
    refused[#refused + 1] = (at - 9) / stride + 1
    refused[#refused + 1] = call('EXISTS', job)
  end
end
if #ids > 0 then
  learn(freed)
  call('ZREM', active, unpack(ids))
  for _, key in ipairs(freed) do move(key, -1) end
  for _, key in ipairs(freed) do
    if count[key] < limit_of[key] and waiting_of(key) > 0 then place(key) end
  end
  write_places()
  if keep == '1' then
    local scored = {}
    for i, id in ipairs(ids) do
      scored[2 * i - 1] = now_text
      scored[2 * i] = id
    end
    call('ZADD', completed, unpack(scored))
    trim(completed, prefix, now, ttl, most, #ids + 100)
    call('PUBLISH', finished, table.concat(ids, '\n'))
  else
    call('DEL', unpack(keys))
  end
end
