#!lua flags=no-writes
-- What a scheduler has to do now, by the server's clock.
-- KEYS    1 schedules  2 prefix of schedules
-- ARGV    1 at most so many  2 due ones only: 0 no, all of them, 1 yes
-- RETURN  { now in ms, ms until the next one is due or -1, of each schedule: its name and { spec, next, last, paused,
--         fired, revision } }
local schedules, prefix = unpack(KEYS)
-- include parts/time.lua

local now = server_ms()
local names
if ARGV[2] == '1' then
  names = redis.call('ZRANGE', schedules, '-inf', text_of(now), 'BYSCORE', 'LIMIT', '0', ARGV[1])
else
  names = redis.call('ZRANGE', schedules, 0, ARGV[1] - 1)
end
local found = {}
for _, name in ipairs(names) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('HMGET', prefix .. name, 'spec', 'next', 'last', 'paused', 'fired', 'revision')
end
local due = -1
local first = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')
if first[2] and first[2] ~= 'inf' then due = math.max(0, first[2] - now) end
return {now, due, found}
