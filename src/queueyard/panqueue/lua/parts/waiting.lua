-- The status of a job that waits again; one that is gone stays gone.
local function mark_waiting(key)
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'status', 'waiting') end
end

-- The counter `runs` after one more claim, as text; nearly always it is the first.
local function next_run(runs)
  if runs == '0' or not runs then return '1' end
  return text_of((tonumber(runs) or 0) + 1)
end
