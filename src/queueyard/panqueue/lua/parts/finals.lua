-- The end of a job that failed for good. `keep` is '1' or '0'; what is not kept leaves nothing behind.
local function bury(failed, prefix, id, now, keep, ttl, count)
  local key = prefix .. id
  if keep == '0' then
    redis.call('DEL', key)
  else
    redis.call('HSET', key, 'status', 'failed', 'finishedAt', now)
    redis.call('ZADD', failed, now, id)
    trim(failed, prefix, now, ttl, count, 100)
  end
end
