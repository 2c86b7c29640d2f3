-- Take a job out of whatever state it is in and let it fail for good, because somebody does not want it any more. The
-- token of a running one is void from now on. Gives 0 missing, 1 already over, 2 withdrawn, 3 withdrawn while it ran.
-- Needs: waiting, active, failed, delayed, held, unplanted, ranked, expiry, notify, keyed, release, settle, bury, now.
local function withdraw(prefix, id, kind, why, actor, log, keep, ttl, most)
  local key = prefix .. id
  local job = redis.pcall('HMGET', key, 'status', 'runs', 'concurrencyKey', 'lockToken')
  if job.err or not job[1] then return 0 end
  local status, group = job[1], job[3] or ''
  if status == 'completed' or status == 'failed' then return 1 end
  local ran = status == 'active'
  if ran then
    redis.call('ZREM', active, id)
    redis.call('HDEL', key, 'lockToken', 'leaseDeadline')
    if keyed then release(group) end
    redis.call('PUBLISH', notify, '!cancel ' .. (job[4] or '') .. ' ' .. id)
  elseif status == 'waiting' then
    if keyed then
      redis.pcall('LREM', k_lists .. group, 0, id)
    elseif redis.call('ZREM', ranked, id) == 0 then
      redis.call('LREM', waiting, 0, id)
    end
  else
    redis.call('ZREM', delayed, id)
    redis.call('ZREM', held, id)
  end
  if keyed then settle(group) end
  redis.call('ZREM', expiry, id)
  redis.call('ZREM', unplanted, id)
  redis.call('HSET', key, 'failureKind', kind, 'failedReason', why, 'lastFailedAt', now)
  bury(failed, prefix, id, now, keep, ttl, most)
  tell(events, log, kind, id, math.max(1, tonumber(job[2]) or 0), actor, why, keyed and group or nil)
  return ran and 3 or 2
end
-- Where somebody else's data stands in the place of a structure, the call fails here, before anything is written.
if keyed then
  redis.call('HLEN', k_active)
  redis.call('ZCARD', k_ready)
  redis.call('HLEN', k_limits)
end
for _, index in ipairs({active, failed, delayed, held, unplanted, ranked, expiry}) do redis.call('ZCARD', index) end
redis.call('LLEN', waiting)
