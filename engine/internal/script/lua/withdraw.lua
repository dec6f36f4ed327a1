-- withdraw: take an engine out of the queue; see front.
-- KEYS[1] queue
-- 1: done   -3: it was not there
local place = redis.call('ZRANK', KEYS[1], engine)
redis.call('ZREM', KEYS[1], engine)
if not place then return -3 end
if place < front then tell(front - 1) end
return 1
