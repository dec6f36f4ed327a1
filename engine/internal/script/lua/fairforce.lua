-- fairforce: take the lock away from its owner. The queue stays, and who is next is woken.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] the only owner to take it from, or ''   ARGV[2] prefix of the owners' channels
-- ARGV[3] PUBLISH or SPUBLISH   ARGV[4] '1': who publishes learns whether anybody hears
-- ARGV[5] ms that each place in the queue counts; not used
-- 1: it was held and is free now   2: the same, but the server refused the message
-- 0: not held, or not by that owner
--
-- If nobody holds the lock, who is next is woken, too: perhaps it was taken away as a
-- lock of another kind, whose waiters were told and these not.
-- It is taken away at the end: who may not do the rest is refused before that.
local free = redis.call('HLEN', KEYS[1]) == 0
redis.call('HDEL', KEYS[1], '') -- as in reenter
if not free and ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local code = free and 0 or 1

local head, over = findHead()
passOver(over, 0)
if wake(head, true) and code == 1 then code = 2 end
redis.call('DEL', KEYS[1])
return code
