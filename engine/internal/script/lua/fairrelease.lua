-- fairrelease: the owner's last hold ends, whatever its count, or the owner leaves the queue. Who
-- is next is woken.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] owner   ARGV[2] prefix of the owners' channels   ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '1': who publishes learns whether anybody hears   ARGV[5] ms that each place in the queue counts
-- ARGV[6] ms that the lock stays taken (MinHold), or 0   ARGV[7] an owner that nobody is
-- 1: released   2: released, but the server refused the message   -3: not held, and not queued any more
--
-- A head that leaves while the lock is free has been woken for nothing: the next one is. So is the
-- head whenever the lock is found free: it may have been released without a message. While the lock
-- stays taken it is nobody's turn: they are told when that ends, no more; so, too, if retire alone
-- has begun that.
--
-- Who has been released is not refused for the rest: of a key that has gone nothing may be asked
-- while the slot is being migrated, and a right may be missing. Asked again, this would find nothing.
-- If it cannot be seen who is next, that is said as if the message were refused.
local owner, rest = ARGV[1], tonumber(ARGV[6])
local code = -3
if rest > 0 then
  if redis.call('HEXISTS', KEYS[1], owner) == 1 then
    code = 1
    redis.call('PEXPIRE', KEYS[1], rest)
    if redis.call('HEXISTS', KEYS[1], owner) == 1 then
      redis.call('HSET', KEYS[1], ARGV[7], 1)
      redis.call('HDEL', KEYS[1], owner)
    end
  else
    redis.call('HDEL', KEYS[1], owner) -- as in retire
  end
elseif redis.call('HDEL', KEYS[1], owner) == 1 then
  code = 1
end
local blind = nil -- the first right that is missing for the rest
ask = function(reply)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'non local key', 1, true) then blind = blind or reply end
end
if ask(redis.pcall('ZSCORE', KEYS[3], owner)) then
  local place = near + 1
  for i, other in ipairs(ask(redis.pcall('LRANGE', KEYS[2], 0, near - 1)) or {}) do
    if other == owner then place = i end
  end
  ask(redis.pcall('LREM', KEYS[2], 0, owner))
  ask(redis.pcall('ZREM', KEYS[3], owner))
  local left = redis.pcall('PTTL', KEYS[1])
  left = type(left) == 'number' and math.max(left, 0) or 0
  comeNearer(place, left, left > 0)
end
if blind and code == -3 then return blind end
local left = redis.pcall('PTTL', KEYS[1])
if type(left) == 'table' then
  if code == -3 then return left end
  left = rest > 0 and rest or -2
end
local free = left == -2
if code == -3 and not free and redis.call('HEXISTS', KEYS[1], ARGV[7]) == 0 then return -3 end

local head, over = findHead()
passOver(over, math.max(left, 0))
if wake(head, free) and code == 1 then code = 2 end
if blind and not head and code == 1 then return 2 end
return code
