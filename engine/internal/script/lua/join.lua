-- join: take a free lock for an owner if it is the turn of its engine, or queue that; see front.
-- KEYS[1] lock hash   KEYS[2] counter of tokens, if the lock has one   the last key: queue
-- ARGV[6] lease, ms   ARGV[7] '1': the engine is behind the front, and has heard nothing for long
-- -2, or {-2, token}: granted
-- {ms left, an owner, n}: not yet, as acquire says it; n is -1 in the front, else the number of engines behind this one
--
-- A free lock is for the front, and for any engine while the front is not full. An engine behind it looks now and
-- then. If it finds the lock free, the front did not come, so it takes the lock, and the whole front loses its
-- places to the next ones. (Its living members join again with their next try.)
--
-- The grant takes the engine out of the queue, and another comes into the front. Where this user, or anybody for
-- want of memory, may not queue, an engine races as one in the front.
--
-- A repeat finds the owner in the hash. The queue ends a minute after the last engine came or looked.
local owner, counts = ARGV[1], #KEYS == 3
local place = redis.call('ZRANK', KEYS[#KEYS], engine)
local ttl = redis.call('PTTL', KEYS[1])
local mine = ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1
if not mine and (ttl ~= -2 or ARGV[7] ~= '1' and (place or redis.call('ZCARD', KEYS[#KEYS])) >= front) then
  local set
  if not place then
    local last = tonumber(redis.call('ZRANGE', KEYS[#KEYS], -1, -1, 'WITHSCORES')[2] or 0)
    set = redis.pcall('ZADD', KEYS[#KEYS], last + 1, engine)
  end
  if type(set) ~= 'table' then
    set = redis.pcall('PEXPIRE', KEYS[#KEYS], 60000)
    if type(set) == 'table' then redis.call('ZREM', KEYS[#KEYS], engine) end
  end
  local behind = -1
  place = redis.call('ZRANK', KEYS[#KEYS], engine)
  if place and place >= front then behind = redis.call('ZCARD', KEYS[#KEYS]) - 1 - place end
  if ttl ~= -2 then return {ttl, redis.pcall('HGETALL', KEYS[1])[1] or '', behind} end
  if place then return {1000, '', behind} end
end

local token
if mine then
  if ttl < tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
  token = counts and tonumber(redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2]))
else
  token = counts and redis.call('INCR', KEYS[2])
  redis.call('HSET', KEYS[1], owner, 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[6])
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], owner)
    return set
  end
end
if place then
  redis.call('ZREM', KEYS[#KEYS], engine)
  if place < front or mine then
    tell(front - 1)
  else
    redis.call('ZREM', KEYS[#KEYS], unpack(redis.call('ZRANGE', KEYS[#KEYS], 0, front - 1)))
    tell(0)
  end
end
return token and {-2, token} or -2
