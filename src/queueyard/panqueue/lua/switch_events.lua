#!lua flags=allow-oom
-- Switch the event stream of a queue on or off. What is in the stream stays.
-- KEYS    1 meta
-- ARGV    1 about how many events are kept, or 0 to switch it off
-- RETURN  1 if that changed anything, else 0
local longest = ARGV[1]
if longest == '0' then return redis.call('HDEL', KEYS[1], 'events') end
if redis.call('HGET', KEYS[1], 'events') == longest then return 0 end
redis.call('HSET', KEYS[1], 'events', longest)
return 1
