#!lua
-- Write a schedule down, change it, pause it or take it away; refused if a slot of it was dealt with meanwhile.
-- KEYS    1 schedules  2 schedule  3 notify (channel)
-- ARGV    1 name  2 the schedule as JSON, or '' to remove it  3 its next slot in ms, or '' for none
--         4 paused: 0 no, 1 yes  5 the newest slot dealt with, as the caller knows it, or ''
-- RETURN  0 done, 1 the caller must look again, 2 there is no such schedule to remove
local schedules, schedule, notify = unpack(KEYS)
local name, spec, next_slot, paused, last = unpack(ARGV)

if (redis.call('HGET', schedule, 'last') or '') ~= last then return 1 end
if spec == '' then
  redis.call('ZREM', schedules, name)
  return redis.call('DEL', schedule) == 1 and 0 or 2
end
redis.call('ZCARD', schedules)
redis.call('HSET', schedule, 'spec', spec, 'next', next_slot, 'paused', paused)
-- Whoever has read what stood here before must not act on it.
redis.call('HINCRBY', schedule, 'revision', 1)
if paused == '1' or next_slot == '' then
  -- It stays in the set, so that it can be listed, but it is never due.
  redis.call('ZADD', schedules, '+inf', name)
else
  redis.call('ZADD', schedules, next_slot, name)
end
redis.call('PUBLISH', notify, '!schedules')
return 0
