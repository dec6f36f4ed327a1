-- retire: the owner's hold ends, but the lock stays taken for a while (MinHold).
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] ms that the lock stays taken
-- ARGV[3] an owner that nobody is   ARGV[4] channel   ARGV[5] PUBLISH, SPUBLISH or ''
-- 1: done   2: done, but the server refused the message   -3: nothing to release
--
-- The field changes its name so that a late copy of a renewal finds nothing to
-- renew: it must not make the rest longer. Waiters are woken to learn the new
-- expiry: they sleep until the old one, which may be far away.
--
-- The first write needs no memory, so that a server that has none left lets the rest
-- pass, too. The expiry comes first: whatever this user may not do, the lock neither stays
-- for good nor is free too soon. (HDEL of what is absent: as in reenter.) The message comes next:
-- if the rest is refused, this is asked again until the lock has expired, and tells nobody then.
--
-- Up to Redis 7.0 a rest of 1 ms may be over when PEXPIRE looks at the clock again; then it
-- deletes the key. HSET would make a new one, without an expiry.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return -3
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local _, refused = announce(ARGV[5], ARGV[4], '0')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], ARGV[3], 1)
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return refused and 2 or 1
