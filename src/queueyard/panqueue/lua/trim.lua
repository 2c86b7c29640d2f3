#!lua flags=allow-oom
-- Evict finished jobs by age and number, a bounded number per call; for queues on which nothing finishes any more.
-- KEYS    1 completed or failed
-- ARGV    1 prefix of job keys  2 greatest age in ms or ''  3 greatest number or ''  4 at most so many
-- RETURN  how many went
local prefix, ttl, count, most = unpack(ARGV)
-- include parts/time.lua
-- include parts/retention.lua
return trim(KEYS[1], prefix, server_ms(), ttl, count, tonumber(most))
