-- leave: give back one of several holds; ARGV[2] is the count afterwards.
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] count, >= 1
-- 0: done, still held; the expiry is left alone   -3: the owner holds nothing here
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1]) -- as in reenter
  return -3
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 0
