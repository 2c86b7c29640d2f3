-- One change of one job, told in the queue's stream. `longest` is the field `events` of meta: false where events are
-- switched off, and then nothing is written. `reason` and `group` (the concurrency key) may be missing. A stream that
-- cannot be written, because somebody else's data stands there, stops nothing.
local function tell(stream, longest, kind, id, attempt, actor, reason, group)
  if longest then
    local more = {}
    if reason then more = {'reason', reason} end
    if group then
      more[#more + 1] = 'group'
      more[#more + 1] = group
    end
    redis.pcall('XADD', stream, 'MAXLEN', '~', longest, '*', 'kind', kind, 'item', id, 'attempt', attempt or 1,
      'actor', actor, unpack(more))
  end
end
