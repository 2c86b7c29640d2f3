#!lua flags=allow-oom
-- One turn of a worker: finish what succeeded, then claim as many jobs as it has free slots, one from each ready key in
-- turn, never more of a key than its limit. Keyed and dynamic mode.
-- KEYS    1 prefix of key lists  2 k:active  3 k:ready  4 k:limits  5 active  6 completed  7 delayed  8 concurrency
--         9 meta  10 notify (channel)  11 finished (channel)  12 events
-- ARGV    1 prefix of job keys  2 how many to claim  3 lease in ms  4 token of these claims  5 worker
--         6 keep completed jobs: 0 no, 1 yes  7 greatest age in ms or ''  8 greatest number or ''
--         9... of each finished job: id, token, key and, if kept, its result as JSON or ''
-- RETURN  { refused, claimed, due } as in turn.lua; behind opts each job has its concurrencyKey
local k_lists, k_active, k_ready, k_limits, active, completed, delayed, concurrency, meta, notify, finished, events =
  unpack(KEYS)
local prefix, want, lease, token, worker, keep, ttl, most = unpack(ARGV, 1, 8)
-- include parts/time.lua
-- include parts/events.lua
-- include parts/retention.lua
-- include parts/waiting.lua

-- include parts/keyed_counts.lua

-- include parts/keyed_finish.lua

-- include parts/keyed_claim.lua

-- include parts/keyed_write.lua
