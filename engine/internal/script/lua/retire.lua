-- retire: the owner's hold ends, but the lock stays taken for a while (MinHold).
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] ms that the lock stays taken
-- ARGV[3] an owner that nobody is
-- 1: done; waiters come in by the expiry   -3: the owner holds nothing here
--
-- The field changes its name so that a late copy of a renewal finds nothing to
-- renew: it must not make the rest longer.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -3 end
redis.call('HSET', KEYS[1], ARGV[3], 1)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
