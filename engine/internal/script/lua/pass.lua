-- pass: an owner gives a lock up for another, which is a fresh one.
-- KEYS[1] lock hash   KEYS[2] counter of tokens, if the lock has one
-- ARGV[1] lease, ms   ARGV[2] owner   ARGV[3] the one that gives it up
-- an array: -2, granted, and the token, 0 without a counter; or -3, neither is there, and 0
--
-- Nobody is told: the lock is never free. A repeat finds the owner, as with acquire; a copy that
-- comes when both have gone does nothing. The lease comes first, because it needs no memory: a
-- server that has none left lets the rest pass, too.
local owner, giver, token = ARGV[2], ARGV[3], 0
local mine = redis.call('HEXISTS', KEYS[1], owner) == 1
if not mine and redis.call('HEXISTS', KEYS[1], giver) == 0 then
  redis.call('HDEL', KEYS[1], owner) -- as in reenter
  return {-3, 0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if KEYS[2] then
  token = mine and tonumber(redis.call('GET', KEYS[2]) or nil) or redis.call('INCR', KEYS[2])
end
if not mine then
  redis.call('HSET', KEYS[1], owner, 1)
  redis.call('HDEL', KEYS[1], giver)
end
return {-2, token}
