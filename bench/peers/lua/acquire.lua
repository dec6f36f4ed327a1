-- acquire: take a free lock for a fresh owner.
-- KEYS[1] lock hash   ARGV[1] lease, ms   ARGV[2] owner
-- -2: granted   {ms left, or -1 without an expiry, one of the owners}: held by others; the owner is empty
-- if this user may not know
--
-- The field's presence decides, never its number, so a repeat is harmless. A user who may
-- not set the expiry gets no lock: nobody would end it.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], ARGV[2])
    return set
  end
  return -2
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  if ttl < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
  return -2
end
return {ttl, redis.pcall('HGETALL', KEYS[1])[1] or ''}
