-- fair: take a lock for an owner in its turn, or queue that owner.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] owner   ARGV[2] prefix of the owners' channels   ARGV[3] PUBLISH, SPUBLISH or BOTH
-- ARGV[4] '1': who publishes learns whether anybody hears   ARGV[5] ms that each place in the queue counts
-- ARGV[6] lease, ms   ARGV[7] '1': queue the owner if it is not its turn
-- -2: granted   >= 0: not yet, ms until it is worth asking again   -1: held by others, no expiry
--
-- The queue is Redisson's: an owner is waited for until its score, in ms since 1970, which has
-- room for all who are before it. Those before it take that room away when they have had the
-- lock. What is left has room for the lease and for each place, at least: Redisson takes a room
-- away for each grant, and one that comes adds a room to the score of the last one; neither looks
-- at the time. One whose score is over loses its place, and is told, as it may live: Redisson does not
-- raise the score of a thread that waits, and gives one that waits for 60 s room for 60 ms. Then
-- it asks, and comes in again at the end.
--
-- An owner of ours that asks again has its score raised, if need be, so that one who is alive is
-- waited for however long the lock is held. The time is the server's. The queue has an expiry,
-- after the last score: without it what dead processes leave would stay for good. It is a day at
-- least: threads of Redisson, which set none, may come behind the last one of ours, and keep the
-- queue for long.
--
-- If the lock is free and it is another's turn, that one is told once more. If nobody hears it,
-- it has 3 seconds to ask: a process that has died does not hold up the queue for longer. So
-- those behind it are told at once, too, until one is heard: they may be of the same process, and
-- have the same 3 seconds. But threads of Redisson are told only if nobody of ours is: while it is
-- not their turn they ask again without a pause. Nor have they 3 seconds: one that is about to
-- listen would ask, sleep, and not have its score raised. Owners of ours have long numbers. One
-- that has no more than 3 seconds already has been told before.
--
-- A process that is paused is heard, and does not ask. When the time of its first owner is over while the
-- lock is free, those of the same process that come next have 3 seconds, too.
--
-- Who is told that it is not its turn asks again soon, later the farther behind it is. A repeat finds
-- the owner, as with acquire. An owner with a score that is not in the queue comes in again: the
-- queue was evicted, say.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owner, room = ARGV[1], tonumber(ARGV[5])
local function tell(other) -- how many hear it, and whether it was refused
  local heard, refused, verb, channel = 0, false, ARGV[3], ARGV[2] .. ':' .. other
  if verb == 'BOTH' then
    local reply = redis.pcall('PUBLISH', channel, '0')
    if type(reply) == 'number' then heard = reply else refused = true end
    verb = 'SPUBLISH'
  end
  local reply = redis.pcall(verb, channel, '0')
  if type(reply) == 'number' then heard = heard + reply else refused = true end
  return heard, refused
end

local head, over = redis.call('LINDEX', KEYS[2], 0), nil
while head do
  local score = redis.call('ZSCORE', KEYS[3], head)
  if score and tonumber(score) > now then break end
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], head)
  tell(head)
  over = head
  head = redis.call('LINDEX', KEYS[2], 0)
end

local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 and (not head or head == owner) then
  redis.call('HSET', KEYS[1], owner, 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[6])
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], owner)
    return set
  end
  if head then
    redis.call('LPOP', KEYS[2])
    redis.call('ZREM', KEYS[3], owner)
    for i, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
      local score = tonumber(redis.call('ZSCORE', KEYS[3], other))
      if score then redis.call('ZADD', KEYS[3], math.max(score - room, now + ARGV[6] + i * room), other) end
    end
  end
  return -2
end
if ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1 then
  if ttl < tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
  return -2
end

local function process(of) return string.match(of, '^(.*):%d%d%d%d%d%d%d%d%d%d%d%d+$') end -- of ours
if over and process(over) and ttl == -2 then
  for _, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if other == owner or process(other) ~= process(over) then break end
    local score = tonumber(redis.call('ZSCORE', KEYS[3], other))
    if score and score > now + 3000 then redis.call('ZADD', KEYS[3], now + 3000, other) end
    tell(other)
  end
end

local place = 1
if ARGV[7] == '1' then
  local score = redis.call('ZSCORE', KEYS[3], owner)
  if not score then
    local last = redis.call('LINDEX', KEYS[2], -1)
    local base = last and redis.call('ZSCORE', KEYS[3], last)
    redis.call('ZADD', KEYS[3], (base and tonumber(base) or now + math.max(ttl, 0)) + room, owner)
    place = redis.call('RPUSH', KEYS[2], owner) - 1
  else
    place = redis.pcall('LPOS', KEYS[2], owner)
    if type(place) == 'table' then -- before Redis 6.0.6
      place = false
      for i, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
        if other == owner then place = i - 1 end
      end
    end
    if not place then place = redis.call('RPUSH', KEYS[2], owner) - 1 end
    local due = now + math.max(ttl, 0) + (place + 1) * room
    if tonumber(score) < due then redis.call('ZADD', KEYS[3], due, owner) end
  end
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  local keep = math.max(tonumber(last) - now + room, 86400000)
  for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], keep) end
end
if ttl ~= -2 then return ttl end

local threads, told = {}, false -- of Redisson, behind the head
for i = 0, redis.call('LLEN', KEYS[2]) - 1 do
  local other = redis.call('LINDEX', KEYS[2], i)
  told = other == owner -- it asks again soon
  if told then break end
  if i > 0 and not process(other) then
    threads[#threads + 1] = other
  else
    local heard, refused = tell(other)
    local score = redis.call('ZSCORE', KEYS[3], other)
    told = heard > 0 or refused or ARGV[4] ~= '1' or not score or tonumber(score) <= now + 3000
    if told then break end
    redis.call('ZADD', KEYS[3], now + 3000, other)
  end
end
if not told then
  for _, thread in ipairs(threads) do
    if tell(thread) > 0 then break end
  end
end
return math.min(math.max(100 * place, 100), 3000)
