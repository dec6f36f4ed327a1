-- fair: take a lock for an owner in its turn, or queue that owner.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] owner   ARGV[2] prefix of the owners' channels   ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '1': who publishes learns whether anybody hears   ARGV[5] ms that each place in the queue counts
-- ARGV[6] lease, ms   ARGV[7] '1': queue the owner if it is not its turn
-- -2: granted   >= 0: not yet, ms until it is worth asking again   -1: held by others, no expiry
--
-- The score of an owner has room for all who are before it. When one of those has had the lock, or has
-- left, it has room for the lease and for each place that is left: Redisson takes a room away for each
-- grant, and one that comes adds a room to the score of the last one; neither looks at the time.
--
-- An owner of ours that asks has its score raised, if need be, so that one who is alive is waited for
-- however long the lock is held. The queue has an expiry, after the last score: without
-- it what dead processes leave would stay for good. It is a day at least: threads of Redisson, which
-- set none, may come behind the last one of ours, and keep the queue for long.
--
-- If the lock is free and it is another's turn, that one is told once more. One that has no more
-- than 3 seconds already has been told before.
--
-- Who is told that it is not its turn asks again soon, later the farther behind it is. A repeat finds
-- the owner, as with acquire. An owner with a score that is not in the queue comes in again: the
-- queue was evicted, say.
local owner = ARGV[1]
local head, over = findHead()

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
    comeNearer(1, tonumber(ARGV[6]), true)
  end
  return -2
end
if ttl ~= -2 and redis.call('HEXISTS', KEYS[1], owner) == 1 then
  if ttl < tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
  return -2
end

passOver(over, math.max(ttl, 0), owner)

local place = 1
if ARGV[7] == '1' then
  local score = tonumber(redis.call('ZSCORE', KEYS[3], owner) or nil)
  local queued = score and redis.pcall('LPOS', KEYS[2], owner)
  if type(queued) == 'table' then -- before Redis 6.0.6
    queued = false
    for i, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
      if other == owner then queued = i - 1 end
    end
  end
  place = queued or redis.call('LLEN', KEYS[2])
  local due = now + math.max(ttl, 0) + (place + 1) * room
  if not score or score < due then redis.call('ZADD', KEYS[3], due, owner) end
  if not queued then redis.call('RPUSH', KEYS[2], owner) end
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  local keep = math.max(tonumber(last) - now + room, 86400000)
  for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], keep) end
end
if ttl ~= -2 then return ttl end

wake(head, true, owner)
return math.min(math.max(100 * place, 100), 3000)
