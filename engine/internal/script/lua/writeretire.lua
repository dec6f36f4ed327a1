-- writeretire: the writer's hold ends, but the lock stays taken for a while (MinHold).
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] ms that the lock stays taken
-- ARGV[3] an owner that nobody is   ARGV[4] channel   ARGV[5] PUBLISH, SPUBLISH, BOTH or ''
-- ARGV[6] base of timeout keys
-- 1: done   2: done, but the server refused the message   -3: nothing to release
--
-- All is as in retire, but for readers beside the writer. They share the lock with others from now
-- on, and nobody is a reader with a timeout key: that keeps writers out for the rest, and ends by
-- itself. If the key cannot be made, as while the slot moves, the lock stays written until it expires.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return -3
end
local rest, nobody, read = tonumber(ARGV[2]), ARGV[3], redis.call('HLEN', KEYS[1]) > 2
redis.call('PEXPIRE', KEYS[1], read and math.max(rest, redis.call('PTTL', KEYS[1])) or rest)
local code = 1
for _, message in ipairs({'1', '00'}) do -- as in rwrelease
  local verb = ARGV[5]
  if verb == 'BOTH' then
    if type(redis.pcall('PUBLISH', ARGV[4], message)) == 'table' then code = 2 end
    verb = 'SPUBLISH'
  end
  if verb ~= '' and type(redis.pcall(verb, ARGV[4], message)) == 'table' then code = 2 end
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  if read then
    local reader = string.gsub(nobody, ':write$', '')
    local set = redis.pcall('SET', ARGV[6] .. ':' .. reader .. ':rwlock_timeout:1', '1', 'PX', rest)
    if not set['err'] then
      nobody = reader
      redis.call('HSET', KEYS[1], 'mode', 'read')
    end
  end
  redis.call('HSET', KEYS[1], nobody, 1)
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return code
