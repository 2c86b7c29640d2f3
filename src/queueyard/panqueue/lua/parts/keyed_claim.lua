want = tonumber(want)
local claimed, due = {}, -1
local ready = {}
if want > 0 and not stored[1] then
  ready = call('ZRANGE', delayed, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', '100')
  if #ready > 0 then
    local woken = {}
    for _, id in ipairs(ready) do
      local key = call('HGET', prefix .. id, 'concurrencyKey') or ''
      if type(redis.pcall('RPUSH', k_lists .. key, id)) == 'number' then
        call('ZREM', delayed, id)
        mark_waiting(prefix .. id)
        woken[#woken + 1] = key
      else
        -- Somebody else's data stands in the place of this key's list: look again in a minute.
        call('ZADD', delayed, text_of(now + 60000), id)
      end
    end
    learn(woken)
    for _, key in ipairs(woken) do
      if count[key] < limit_of[key] then place(key) end
    end
    write_places()
  end

  local held = call('ZCARD', active)
  local free = limit and math.min(want, limit - held) or want
  local deadline, leases = text_of(now + lease), {}
  while free > 0 do
    local turns = call('ZPOPMIN', k_ready, free)
    if #turns == 0 then break end
    local names = {}
    for i = 1, #turns, 2 do names[#names + 1] = turns[i] end
    learn(names)
    for _, key in ipairs(names) do
      local id = count[key] < limit_of[key] and redis.pcall('LPOP', k_lists .. key)
      if type(id) == 'string' then
        claimed[#claimed + 1] = id
        local job = redis.pcall('HMGET', prefix .. id, 'payload', 'runs', 'failures', 'opts')
        if job.err or not job[1] then
          claimed[#claimed + 1] = false
        else
          job[5] = key
          claimed[#claimed + 1] = job
          move(key, 1)
          free = free - 1
          local runs = next_run(job[2])
          call('HSET', prefix .. id, 'status', 'active', 'runs', runs, 'lastStartedAt', now_text, 'lockToken', token,
            'leaseDeadline', deadline)
          leases[#leases + 1] = deadline
          leases[#leases + 1] = id
          if log then tell(events, log, 'started', id, runs, worker, nil, key) end
        end
        if count[key] < limit_of[key] and waiting_of(key) > 0 then place(key) end
      end
    end
    write_places()
  end
  if #leases > 0 then
    if held == 0 and #leases > 32 then
      -- As in turn.lua: one long member, gone again at once, makes a skip list of a flat array.
      local long = string.rep('-', 65)
      call('ZADD', active, deadline, long, unpack(leases))
      call('ZREM', active, long)
    else
      call('ZADD', active, unpack(leases))
    end
  end
  if #leases / 2 < want then
    local first = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if first[2] then due = math.max(1, first[2] - now) end
  end
end
