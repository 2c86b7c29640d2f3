#!lua flags=allow-oom
-- Note that failed jobs were copied to the dead letter queue, and up to where all were looked at.
-- KEYS    1 meta
-- ARGV    1 prefix of job keys  2 score of the last failed job that was looked at  3... ids
-- RETURN  how many were noted
local meta = KEYS[1]
-- include parts/time.lua

local now, noted = text_of(server_ms()), 0
for at = 3, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[at]) == 1 then
    redis.call('HSET', ARGV[1] .. ARGV[at], 'deadLetteredAt', now)
    noted = noted + 1
  end
end
redis.call('HSET', meta, 'deadCursor', ARGV[2])
return noted
