-- force: take the lock away from its owner.
-- KEYS[1] lock hash   ARGV[1] the only owner to take it from, or ''   ARGV[2] channel
-- ARGV[3] PUBLISH, SPUBLISH or ''
-- 1: it was held and is free now   2: the same, but the server refused the message
-- 0: not held, or not by that owner
if redis.call('HLEN', KEYS[1]) == 0 or (ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0) then
  redis.call('HDEL', KEYS[1], ARGV[1]) -- as in reenter
  return 0
end
redis.call('DEL', KEYS[1])
local _, refused = announce(ARGV[3], ARGV[2], '0')
return refused and 2 or 1
