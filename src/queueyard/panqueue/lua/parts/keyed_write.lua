local counts, idle = {}, {}
for _, key in ipairs(changed) do
  if count[key] > 0 then
    counts[#counts + 1] = key
    counts[#counts + 1] = count[key] == 1 and '1' or text_of(count[key])
  else
    idle[#idle + 1] = key
  end
end
if #counts > 0 then
  if busy == 0 and #counts > 32 then
    -- The same for the counts: a long field makes a table of a flat array.
    local long = string.rep('-', 65)
    call('HSET', k_active, long, '', unpack(counts))
    call('HDEL', k_active, long)
  else
    call('HSET', k_active, unpack(counts))
  end
end
if #idle > 0 then call('HDEL', k_active, unpack(idle)) end

if (#ready > 0 or #ids > 0) and not stored[1] and call('EXISTS', k_ready) == 1 then
  call('PUBLISH', notify, '')
end
return {refused, claimed, due}
