local now = server_ms()
local now_text = text_of(now)
local call = redis.call
local stored = call('HMGET', meta, 'paused', 'events', 'mode', 'keyConcurrency', 'seq')
local log, dynamic, common_limit = stored[2], stored[3] == 'dynamic', tonumber(stored[4] or 1)

-- What this call knows of each key; counts are read in bulk, changed here, and written back in bulk at the end.
local count, limit_of, changed = {}, {}, {}
local function learn(names)
  local unknown = {}
  for _, key in ipairs(names) do
    if not count[key] then
      count[key] = 0
      unknown[#unknown + 1] = key
    end
  end
  if #unknown == 0 then return end
  local counts = call('HMGET', k_active, unpack(unknown))
  local limits = dynamic and call('HMGET', k_limits, unpack(unknown)) or {}
  for i, key in ipairs(unknown) do
    count[key] = tonumber(counts[i]) or 0
    limit_of[key] = tonumber(limits[i]) or common_limit
  end
end
local function move(key, step)
  count[key] = count[key] + step
  if not changed[key] then
    changed[key] = true
    changed[#changed + 1] = key
  end
end
