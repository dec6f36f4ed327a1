-- release: the owner's last hold ends, whatever its count, and waiters are woken.
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] channel   ARGV[3] PUBLISH, SPUBLISH or ''
-- 1: released   2: released, but the server refused the message   -3: nothing to release
--
-- The channel is an argument, not a key: a second key would make every release
-- fail with TRYAGAIN while the slot is being migrated.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return -3 end
local _, refused = announce(ARGV[3], ARGV[2], '0')
return refused and 2 or 1
