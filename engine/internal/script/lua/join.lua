-- join: take a free lock for an owner if it is the turn of its engine, or queue that; see front.
-- KEYS[1] lock hash   KEYS[2] counter of tokens, if the lock has one   the last key: queue
-- ARGV[6] lease, ms   ARGV[7] number of the first that this engine has waited for; 0: it has not
-- -2, or {-2, token}: granted
-- {ms left, an owner, n}: not yet, as acquire says it; n is -1 in the front, else the number of engines behind this one
-- {-1, '', n, number}: the lock is free, and it is the turn of others, the first of whom has that number
--
-- A free lock is for the front, and for any engine while the front is not full: that is the one behind the last then.
-- They race for it, but they overtake the first once less than the front has places: then the lock is for the first
-- alone. Engines have numbers in the order in which they came, and the eighths of the first's count that. (So the front
-- has 8 places at most.) An answer has the number in 32 bits, and never as 0.
--
-- An engine that has waited for the turn of others, and names the number that the first had and still has, has seen that
-- nobody of the queue has taken the lock meanwhile. So it takes the lock, and the first, or from behind it the
-- whole front, loses its place to the next ones. (The living ones join again with their next try.)
--
-- The grant takes the engine out of the queue, and another comes into the front. Where this user, or anybody for
-- want of memory, may not queue, an engine races as one in the front.
--
-- A repeat finds the owner in the hash. The queue ends a minute after the last engine came or tried.
local owner, counts = ARGV[1], #KEYS == 3
local place = redis.call('ZRANK', KEYS[#KEYS], engine)

local function number(at) return tonumber(redis.call('ZRANGE', KEYS[#KEYS], at, at, 'WITHSCORES')[2] or 0) end

local ttl = redis.call('PTTL', KEYS[1])
local mine = ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1
local ahead, first, short, absent, turn = 0, 0, 0, 0, false -- if the lock is free: who came before, and whose turn it is
if ttl == -2 then
  ahead = place or redis.call('ZCARD', KEYS[#KEYS])
  if ahead > 0 then
    first = number(0)
    short = math.floor(first * 8) % 4294967295 + 1
    if short == tonumber(ARGV[7]) then absent = ahead < front and 1 or front end
  end
  turn = ahead == 0 or absent > 0 or ahead < front and first % 1 * 8 < front - 1
end
if not mine and not turn then
  local set
  if not place then set = redis.pcall('ZADD', KEYS[#KEYS], math.floor(number(-1)) + 1, engine) end
  if type(set) ~= 'table' then
    set = redis.pcall('PEXPIRE', KEYS[#KEYS], 60000)
    if type(set) == 'table' then redis.call('ZREM', KEYS[#KEYS], engine) end
  end
  local behind = -1
  place = redis.call('ZRANK', KEYS[#KEYS], engine)
  if place and place >= front then behind = redis.call('ZCARD', KEYS[#KEYS]) - 1 - place end
  if ttl ~= -2 then return {ttl, redis.pcall('HGETALL', KEYS[1])[1] or '', behind} end
  if place then return {-1, '', behind, short} end
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
if place then redis.call('ZREM', KEYS[#KEYS], engine) end
if absent > 0 then
  redis.call('ZREM', KEYS[#KEYS], unpack(redis.call('ZRANGE', KEYS[#KEYS], 0, absent - 1)))
elseif ahead > 0 then
  redis.pcall('ZADD', KEYS[#KEYS], first + 1 / 8, redis.call('ZRANGE', KEYS[#KEYS], 0, 0)[1])
end
if place or absent > 0 then tell(math.max(front - 1 - absent, 0)) end
return token and {-2, token} or -2
