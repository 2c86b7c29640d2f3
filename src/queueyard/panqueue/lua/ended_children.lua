#!lua flags=no-writes
-- Which jobs of flows have ended, and how; a page of them, or single ones.
-- KEYS    1 children
-- ARGV    1 prefix of job keys  2 cursor, or '' to look at single ones  3... their ids
-- RETURN  { next cursor, of each that has ended: id, its parent as JSON, 1 well or 0 failed, and its result or why }
local children = KEYS[1]
local next_cursor, entries = '0', {}
if ARGV[2] == '' then
  for at = 3, #ARGV do
    entries[#entries + 1] = ARGV[at]
    entries[#entries + 1] = redis.call('HGET', children, ARGV[at])
  end
else
  local page = redis.call('HSCAN', children, ARGV[2], 'COUNT', 100)
  next_cursor, entries = page[1], page[2]
end
local ended = {}
local function tell_end(id, parent, well, text)
  for _, word in ipairs({id, parent, well, text}) do ended[#ended + 1] = word end
end
for i = 1, #entries, 2 do
  local id, parent = entries[i], entries[i + 1]
  if parent then
    local cut = string.find(parent, '\n', 1, true)
    if cut then
      tell_end(id, string.sub(parent, 1, cut - 1), 1, string.sub(parent, cut + 1))
    else
      local job = redis.pcall('HMGET', ARGV[1] .. id, 'status', 'result', 'failedReason')
      if job.err or not job[1] then
        tell_end(id, parent, 0, 'it was removed')
      elseif job[1] == 'completed' then
        tell_end(id, parent, 1, job[2] or '')
      elseif job[1] == 'failed' then
        tell_end(id, parent, 0, job[3] or '')
      end
    end
  end
end
return {next_cursor, ended}
