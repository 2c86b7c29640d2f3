#!lua flags=no-writes
-- One page of the jobs in one state: those that run next, or ended last, come first.
-- KEYS    1 waiting  2 the sorted set of the state  3 meta  4 k:ready  5 k:active  6 k:limits  7 prefix of key lists
--         8 ranked  9 k:limited
-- ARGV    1 prefix of job keys  2 state  3 skip so many  4 at most so many
-- RETURN  of each job: its id and its fields
local waiting, index, meta, k_ready, k_active, k_limits, k_lists, ranked, k_limited = unpack(KEYS)
local prefix, state, skip, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local ids = {}
local mode = redis.call('HGET', meta, 'mode')
if state ~= 'waiting' then
  local newest_first = state == 'completed' or state == 'failed'
  ids = redis.call(newest_first and 'ZREVRANGE' or 'ZRANGE', index, skip, skip + most - 1)
elseif mode == 'keyed' or mode == 'dynamic' then
  -- Key after key, in the order in which the keys come up; the order of single jobs depends on who finishes when.
  local seen = {}
  for _, names in ipairs({redis.call('ZRANGE', k_ready, 0, -1), redis.call('HKEYS', k_active),
    redis.call('HKEYS', k_limits), redis.call('ZRANGE', k_limited, 0, -1)}) do
    for _, key in ipairs(names) do
      if #ids >= most then break end
      local length = not seen[key] and redis.call('LLEN', k_lists .. key) or 0
      seen[key] = true
      if skip >= length then
        skip = skip - length
      else
        for _, id in ipairs(redis.call('LRANGE', k_lists .. key, skip, skip + most - #ids - 1)) do ids[#ids + 1] = id end
        skip = 0
      end
    end
  end
else
  ids = redis.call('ZRANGE', ranked, skip, skip + most - 1)
  skip = math.max(0, skip - redis.call('ZCARD', ranked))
  most = most - #ids
  local found = most > 0 and redis.call('LRANGE', waiting, -skip - most, -skip - 1) or {}
  for i = #found, 1, -1 do ids[#ids + 1] = found[i] end
end

local jobs = {}
for i, id in ipairs(ids) do
  local fields = redis.pcall('HGETALL', prefix .. id)
  jobs[i] = {id, fields.err and {} or fields}
end
return jobs
