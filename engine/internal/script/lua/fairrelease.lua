-- fairrelease: the owner's last hold ends, whatever its count, or the owner leaves the queue. Who
-- is next is woken.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] owner   ARGV[2] prefix of the owners' channels   ARGV[3] PUBLISH, SPUBLISH or BOTH
-- ARGV[4] '1': who publishes learns whether anybody hears   ARGV[5] ms that each place in the queue counts
-- ARGV[6] ms that the lock stays taken (MinHold), or 0   ARGV[7] an owner that nobody is
-- 1: released   2: released, but the server refused the message   -3: not held, and not queued any more
--
-- A head that leaves while the lock is free has been woken for nothing: the next one is. So is the
-- head whenever the lock is found free: it may have been released without a message. A head
-- that nobody hears has 3 seconds to ask, as in fair, and the next one is told, too: it asks from
-- now on. While the lock stays taken it is nobody's turn: they are told when that ends, no more;
-- so, too, if retire alone has begun that.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owner, room, rest = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])
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
local waits = redis.call('ZSCORE', KEYS[3], owner)
if waits then
  local behind = false
  for _, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local score = behind and tonumber(redis.call('ZSCORE', KEYS[3], other))
    if score then -- as in fair
      redis.call('ZADD', KEYS[3], math.max(score - room, math.min(score, now + 3000)), other)
    end
    behind = behind or other == owner
  end
  redis.call('LREM', KEYS[2], 0, owner)
  redis.call('ZREM', KEYS[3], owner)
end
local free = redis.call('PTTL', KEYS[1]) == -2
if code == -3 and not free and redis.call('HEXISTS', KEYS[1], ARGV[7]) == 0 then return -3 end

local head = redis.call('LINDEX', KEYS[2], 0)
while head do
  local score = redis.call('ZSCORE', KEYS[3], head)
  if score and tonumber(score) > now then break end
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], head)
  head = redis.call('LINDEX', KEYS[2], 0)
end
for i = 0, redis.call('LLEN', KEYS[2]) - 1 do
  local other = redis.call('LINDEX', KEYS[2], i)
  local heard, refused, verb, channel = 0, false, ARGV[3], ARGV[2] .. ':' .. other
  if verb == 'BOTH' then
    local reply = redis.pcall('PUBLISH', channel, '0')
    if type(reply) == 'number' then heard = reply else refused = true end
    verb = 'SPUBLISH'
  end
  local reply = redis.pcall(verb, channel, '0')
  if type(reply) == 'number' then heard = heard + reply else refused = true end
  if refused and code == 1 then code = 2 end
  if heard > 0 or refused or ARGV[4] ~= '1' then break end
  local score = redis.call('ZSCORE', KEYS[3], other)
  if free and score and tonumber(score) > now + 3000 then redis.call('ZADD', KEYS[3], now + 3000, other) end
end
return code
