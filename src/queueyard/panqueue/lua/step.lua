#!lua flags=allow-oom
-- A finished step of a job: look it up, or write it down, fenced by the job's token.
-- KEYS    1 meta
-- ARGV    1 prefix of job keys  2 id  3 token  4 name of the step  5 its result as JSON; left out to look it up
-- RETURN  { 0 missing, 1 stale, 2 done; the stored result or false }
local key, name = ARGV[1] .. ARGV[2], 'step:' .. ARGV[4]
local job = redis.pcall('HMGET', key, 'lockToken', name)
if job.err or job[1] ~= ARGV[3] then return {redis.call('EXISTS', key), false} end
if ARGV[5] and not job[2] then
  redis.call('HSET', key, name, ARGV[5])
  return {2, ARGV[5]}
end
return {2, job[2]}
