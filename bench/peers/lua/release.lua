-- release: the owner's last hold ends, whatever its count, and waiters are woken.
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] channel   ARGV[3] PUBLISH, SPUBLISH, BOTH or ''
-- 1: released   2: released, but the server refused the message   -3: nothing to release
--
-- The channel is an argument, not a key: a second key would make every release
-- fail with TRYAGAIN while the slot is being migrated.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return -3 end
local verb = ARGV[3]
if verb ~= '' then
  if verb == 'BOTH' then
    redis.pcall('PUBLISH', ARGV[2], '0')
    verb = 'SPUBLISH'
  end
  local sent = redis.pcall(verb, ARGV[2], '0')
  if type(sent) == 'table' then return 2 end
end
return 1
