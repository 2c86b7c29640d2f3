#!lua flags=allow-oom
-- Pause or resume a queue: while it is paused nothing is claimed; what runs goes on, and jobs may be added.
-- KEYS    1 meta  2 notify (channel)  3 events
-- ARGV    1 pause: 1, resume: 0  2 who
-- RETURN  1 if that changed anything, else 0
local meta, notify, events = unpack(KEYS)
-- include parts/events.lua

local stored = redis.call('HMGET', meta, 'paused', 'events')
local paused = ARGV[1] == '1'
if paused == (stored[1] ~= false) then return 0 end
if paused then
  redis.call('HSET', meta, 'paused', 1)
else
  redis.call('HDEL', meta, 'paused')
  redis.call('PUBLISH', notify, '')
end
tell(events, stored[2], paused and 'paused' or 'resumed', '', 1, ARGV[2])
return 1
