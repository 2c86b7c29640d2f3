if #popped > 0 then
  local deadline = text_of(now + lease)
  local leases, last = {}, 0
  for i, id in ipairs(popped) do
    local key = prefix .. id
    local job = redis.pcall('HMGET', key, 'payload', 'runs', 'failures', 'opts')
    claimed[2 * i - 1] = id
    if job.err or not job[1] then
      claimed[2 * i] = false
    else
      claimed[2 * i] = job
      local runs = next_run(job[2])
      call('HSET', key, 'status', 'active', 'runs', runs, 'lastStartedAt', now_text, 'lockToken', token,
        'leaseDeadline', deadline)
      leases[last + 1], leases[last + 2] = deadline, id
      last = last + 2
      if log then tell(events, log, 'started', id, runs, worker) end
    end
  end
  if held == 0 and last > 32 then
    -- A small sorted set is a flat array that is searched from its start. One long member turns it into a skip list
    -- for as long as it is not empty; it is gone again before anybody can see it.
    local long = string.rep('-', 65)
    call('ZADD', active, deadline, long, unpack(leases))
    call('ZREM', active, long)
  elseif last > 0 then
    call('ZADD', active, unpack(leases))
  end
end
