#!lua flags=allow-oom
-- Write down what handlers say while they run: progress and log lines, each fenced by its token.
-- KEYS    1 meta  2 prefix of logs  3 events
-- ARGV    1 prefix of job keys  2 worker  3 lines kept per job  4 ms that lines are kept
--         5... of each report: id, token, kind (progress, log) and text
-- RETURN  how many were written
local meta, logs, events = unpack(KEYS)
local prefix, worker, longest, ttl = unpack(ARGV, 1, 4)
-- include parts/time.lua
-- include parts/events.lua

local log = redis.call('HGET', meta, 'events')
local now = text_of(server_ms())
local written = 0
for at = 5, #ARGV, 4 do
  local id, token, kind, text = unpack(ARGV, at, at + 3)
  local job = redis.pcall('HMGET', prefix .. id, 'lockToken', 'runs', 'concurrencyKey')
  if not job.err and job[1] == token then
    written = written + 1
    if kind == 'progress' then
      redis.call('HSET', prefix .. id, 'progress', text)
      tell(events, log, 'progressed', id, job[2], worker, text, job[3] or nil)
    else
      -- Somebody else's data in the place of a log stops nothing.
      local length = redis.pcall('RPUSH', logs .. id, now .. ' ' .. text)
      if type(length) == 'number' then
        if length > tonumber(longest) then redis.call('LTRIM', logs .. id, -longest, -1) end
        redis.call('PEXPIRE', logs .. id, ttl)
      end
    end
  end
end
return written
