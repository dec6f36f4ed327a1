-- rwforce: take a read-write lock away from its readers, or from its writer.
-- KEYS[1] lock hash   ARGV[1] the only owner to take it from, or ''   ARGV[2] read or write
-- ARGV[3] base of timeout keys   ARGV[4] message   ARGV[5] channel   ARGV[6] PUBLISH, SPUBLISH or ''
-- 1: it was held so and is free now   2: the same, but the server refused the message
-- 0: not held so, or not by that owner
--
-- HDEL of what is absent: as in reenter. It comes first, so that who may take it from readers and
-- not from a writer, or the other way round, does neither. A timeout key that cannot be deleted
-- ends by itself.
local messages = ARGV[4] == '0' and {'0'} or {'1', '00'} -- as in rwrelease
redis.call('HDEL', KEYS[1], '')
if redis.call('HGET', KEYS[1], 'mode') ~= ARGV[2]
  or ARGV[1] ~= '' and (ARGV[1] == 'mode' or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0)
  or ARGV[1] ~= '' and ARGV[2] == 'write' and not string.find(ARGV[1], ':write$') then -- a reader beside it
  return 0
end
local fields = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
for f = 1, #fields, 2 do
  for i = 1, tonumber(fields[f + 1]) or 0 do
    redis.pcall('DEL', ARGV[3] .. ':' .. fields[f] .. ':rwlock_timeout:' .. i)
  end
end
local code = 1
for _, message in ipairs(messages) do
  local _, refused = announce(ARGV[6], ARGV[5], message)
  if refused then code = 2 end
end
return code
