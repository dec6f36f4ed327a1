-- state: who holds the lock.
-- KEYS[1] lock hash
-- an array: ms left (-1 no expiry, -2 free), then owner, count, owner, count ...
local fields = redis.call('HGETALL', KEYS[1])
table.insert(fields, 1, redis.call('PTTL', KEYS[1]))
return fields
