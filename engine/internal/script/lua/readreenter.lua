-- readreenter: a reader takes the lock once more; ARGV[3] is the count afterwards.
-- KEYS[1] lock hash   KEYS[2] the owner's timeout key of that number
-- ARGV[1] lease, ms   ARGV[2] owner   ARGV[3] count, >= 2
-- -2: granted   -3: the owner holds nothing here; nothing is created
--
-- HDEL of what is absent: as in reenter.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[2])
  return -3
end
local lease = tonumber(ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', math.max(lease, redis.call('PTTL', KEYS[2])))
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if redis.call('PTTL', KEYS[1]) < lease then redis.call('PEXPIRE', KEYS[1], lease) end
return -2
