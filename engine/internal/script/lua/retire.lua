-- retire: the owner's hold ends, but the lock stays taken for a while (MinHold).
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] ms that the lock stays taken
-- ARGV[3] an owner that nobody is   ARGV[4] channel   ARGV[5] PUBLISH, SPUBLISH, BOTH or ''
-- 1: done   2: done, but the server refused the message   -3: nothing to release
--
-- The field changes its name so that a late copy of a renewal finds nothing to
-- renew: it must not make the rest longer. Waiters are woken to learn the new
-- expiry: they sleep until the old one, which may be far away.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1]) -- as in reenter
  return -3
end
redis.call('HSET', KEYS[1], ARGV[3], 1)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local verb = ARGV[5]
if verb ~= '' then
  if verb == 'BOTH' then
    redis.pcall('PUBLISH', ARGV[4], '0')
    verb = 'SPUBLISH'
  end
  local sent = redis.pcall(verb, ARGV[4], '0')
  if type(sent) == 'table' then return 2 end
end
return 1
