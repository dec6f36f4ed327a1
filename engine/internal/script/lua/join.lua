-- join: take a free lock for an owner if it is the turn of its engine, or queue that; see front.
-- KEYS[1] lock hash   KEYS[2] counter of tokens, if the lock has one   the last key: queue
-- ARGV[6] lease, ms   ARGV[7] '1': the engine has let others go first, and has heard nothing of them
-- -2, or {-2, token}: granted
-- {ms left, an owner, n}: not yet, as acquire says it; n is -1 in the front; -2 in the front, if the lock is free and
-- it is the turn of the first; else the number of engines behind this one
--
-- A free lock is for the front, and for any engine while the front is not full. The front races for it, but the others
-- in it overtake the first once less than it has places: then the lock waits for that one, for 10 ms. Engines have
-- numbers in the order in which they came, and the eighths of the first's count that. (So the front has 8 at most.)
--
-- An engine in the front that has waited those 10 ms looks, and one behind it does now and then. If it finds the lock
-- free, that first, or the whole front, did not come, so it takes the lock, and they lose their places to the next
-- ones. (The living ones join again with their next try.)
--
-- The grant takes the engine out of the queue, and another comes into the front. Where this user, or anybody for
-- want of memory, may not queue, an engine races as one in the front.
--
-- A repeat finds the owner in the hash. The queue ends a minute after the last engine came or looked.
local owner, counts = ARGV[1], #KEYS == 3
local place = redis.call('ZRANK', KEYS[#KEYS], engine)

local function number(at) return tonumber(redis.call('ZRANGE', KEYS[#KEYS], at, at, 'WITHSCORES')[2] or 0) end

local ttl = redis.call('PTTL', KEYS[1])
local mine = ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1
local turn = ARGV[7] == '1' or place == 0 -- if the lock is free it is for this engine
if ttl == -2 and not turn then
  if place then
    turn = place < front and number(0) % 1 * 8 < front - 1
  else
    turn = redis.call('ZCARD', KEYS[#KEYS]) < front
  end
end
if not mine and (ttl ~= -2 or not turn) then
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
  if place then return {place < front and 10 or 1000, '', place < front and -2 or behind} end
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
  local absent = 0
  if place > 0 and not mine then
    if ARGV[7] == '1' then
      absent = place < front and 1 or front
      redis.call('ZREM', KEYS[#KEYS], unpack(redis.call('ZRANGE', KEYS[#KEYS], 0, absent - 1)))
    else
      redis.pcall('ZADD', KEYS[#KEYS], number(0) + 1 / 8, redis.call('ZRANGE', KEYS[#KEYS], 0, 0)[1])
    end
  end
  tell(math.max(front - 1 - absent, 0))
end
return token and {-2, token} or -2
