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
-- so, too, if retire alone has begun that. One whose time is over is told as well, as in fair.
--
-- Who has been released is not refused for the rest: of a key that has gone nothing may be asked
-- while the slot is being migrated, and a right may be missing. Asked again, this would find nothing.
-- If it cannot be seen who is next, that is said as if the message were refused.
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
local blind = nil -- the first right that is missing for the rest
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'non local key', 1, true) then blind = blind or reply end
end
local waits = ask('ZSCORE', KEYS[3], owner)
if waits then
  local place, left = 0, redis.pcall('PTTL', KEYS[1])
  left = type(left) == 'number' and math.max(left, 0) or 0
  for i, other in ipairs(ask('LRANGE', KEYS[2], 0, -1) or {}) do
    local score = place > 0 and tonumber(ask('ZSCORE', KEYS[3], other) or nil)
    if score then -- as in fair, but nobody who may be dead gets more time while the lock is free
      local least = now + left + (i - 1) * room
      if left == 0 then least = math.min(score, least) end
      ask('ZADD', KEYS[3], math.max(score - room, least), other)
    end
    if other == owner then place = i end
  end
  ask('LREM', KEYS[2], 0, owner)
  ask('ZREM', KEYS[3], owner)
end
if blind and code == -3 then return blind end
local free = redis.pcall('PTTL', KEYS[1])
if type(free) == 'table' then
  if code == -3 then return free end
  free = rest > 0 and 1 or -2
end
free = free == -2
if code == -3 and not free and redis.call('HEXISTS', KEYS[1], ARGV[7]) == 0 then return -3 end

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

local head, over = ask('LINDEX', KEYS[2], 0), nil
while head do
  local score = ask('ZSCORE', KEYS[3], head)
  if score == nil or score and tonumber(score) > now then break end
  if not ask('LPOP', KEYS[2]) then break end
  ask('ZREM', KEYS[3], head)
  tell(head)
  over = head
  head = ask('LINDEX', KEYS[2], 0)
end
local function process(of) return string.match(of, '^(.*):%d%d%d%d%d%d%d%d%d%d%d%d+$') end -- as in fair
if over and process(over) and free then
  for _, other in ipairs(ask('LRANGE', KEYS[2], 0, -1) or {}) do
    if process(other) ~= process(over) then break end
    local score = tonumber(ask('ZSCORE', KEYS[3], other) or nil)
    if score and score > now + 3000 then ask('ZADD', KEYS[3], now + 3000, other) end
    tell(other)
  end
end
local threads, told = {}, false -- as in fair
for i, other in ipairs(head and (ask('LRANGE', KEYS[2], 0, -1) or {head}) or {}) do
  if i > 1 and #string.match(other, '%d*$') <= 11 then
    threads[#threads + 1] = other
  else
    local heard, refused = tell(other)
    if refused and code == 1 then code = 2 end
    told = heard > 0 or refused or ARGV[4] ~= '1'
    if told then break end
    local score = tonumber(ask('ZSCORE', KEYS[3], other) or nil)
    if free and score and score > now + 3000 then ask('ZADD', KEYS[3], now + 3000, other) end
  end
end
if not told then
  for _, thread in ipairs(threads) do
    if tell(thread) > 0 then break end
  end
end
if blind and not head and code == 1 then return 2 end
return code
