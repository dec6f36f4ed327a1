-- leave: give back one of several holds; ARGV[2] is the count afterwards.
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] count, >= 1
-- 0: done, still held; the expiry is left alone   -3: the owner holds nothing here
--
-- HDEL of what is absent does nothing, but it is a write that needs no memory: a server
-- that has none left lets the rest pass, too, and a replica refuses it.
redis.call('HDEL', KEYS[1], '')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -3 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 0
