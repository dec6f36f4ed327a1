-- raise: raise the expiry of a timeout key that has been moved away from its lock hash.
-- KEYS[1] timeout key   ARGV[1] lease, ms
-- an array: 1 raised, -5 it is not there
local ttl = redis.call('PTTL', KEYS[1])
if redis.call('PEXPIRE', KEYS[1], math.max(ttl, tonumber(ARGV[1]))) == 1 then return {1} end
return {-5}
