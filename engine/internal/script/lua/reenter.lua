-- reenter: the owner takes the lock once more; ARGV[3] is the count afterwards.
-- KEYS[1] lock hash   ARGV[1] lease, ms   ARGV[2] owner   ARGV[3] count, >= 2
-- -2: granted   -3: the owner holds nothing here; nothing is created
--
-- HDEL of what is absent does nothing, but a replica refuses it: only a primary may
-- say that the hold is gone.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[2])
  return -3
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return -2
