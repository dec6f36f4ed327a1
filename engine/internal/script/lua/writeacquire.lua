-- writeacquire: take a free read-write lock for a fresh owner that writes.
-- KEYS[1] lock hash   ARGV[1] lease, ms   ARGV[2] owner
-- -2: granted   >= 0: held by others, ms left   -1: held by others, no expiry
--
-- All is as in acquire.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[2], 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], 'mode', ARGV[2])
    return set
  end
  return -2
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  if ttl < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
  return -2
end
return ttl
