-- fenced: take a free lock for a fresh owner, with a fencing token.
-- KEYS[1] lock hash   KEYS[2] counter of tokens   ARGV[1] lease, ms   ARGV[2] owner
-- {-2, token}: granted   {ms left, owner}: held by others, as acquire says it
--
-- Each grant counts once. A repeat finds the owner, and the counter as that has left it: nobody
-- else counts while the lock is held. A user who may not count, or may not set the expiry, gets
-- no lock.
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  local token = redis.call('INCR', KEYS[2])
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], ARGV[2])
    return set
  end
  return {-2, token}
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  if ttl < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
  return {-2, tonumber(redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2]))}
end
return {ttl, redis.pcall('HGETALL', KEYS[1])[1] or ''}
