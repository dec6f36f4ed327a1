-- fairforce: take the lock away from its owner. The queue stays, and who is next is woken.
-- KEYS[1] lock hash   KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[1] the only owner to take it from, or ''   ARGV[2] prefix of the owners' channels
-- ARGV[3] PUBLISH, SPUBLISH or BOTH   ARGV[4] '1': who publishes learns whether anybody hears
-- ARGV[5] ms that each place in the queue counts; not used
-- 1: it was held and is free now   2: the same, but the server refused the message
-- 0: not held, or not by that owner
--
-- If nobody holds the lock, who is next is woken, too: perhaps it was taken away as a
-- lock of another kind, whose waiters were told and these not.
-- It is taken away at the end: who may not do the rest is refused before that.
local free = redis.call('HLEN', KEYS[1]) == 0
redis.call('HDEL', KEYS[1], '') -- as in reenter
if not free and ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local code = free and 0 or 1
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

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
local function process(of) return string.match(of, '^(.*):%d%d%d%d%d%d%d%d%d%d%d%d+$') end -- as in fair
if over and process(over) then
  for _, other in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if process(other) ~= process(over) then break end
    local score = tonumber(redis.call('ZSCORE', KEYS[3], other))
    if score and score > now + 3000 then redis.call('ZADD', KEYS[3], now + 3000, other) end
    tell(other)
  end
end
local threads, told = {}, false -- as in fair
for i = 0, redis.call('LLEN', KEYS[2]) - 1 do
  local other = redis.call('LINDEX', KEYS[2], i)
  if i > 0 and #string.match(other, '%d*$') <= 11 then
    threads[#threads + 1] = other
  else
    local heard, refused = tell(other)
    if refused and code == 1 then code = 2 end
    told = heard > 0 or refused or ARGV[4] ~= '1'
    if told then break end
    local score = redis.call('ZSCORE', KEYS[3], other)
    if score and tonumber(score) > now + 3000 then redis.call('ZADD', KEYS[3], now + 3000, other) end
  end
end
if not told then
  for _, thread in ipairs(threads) do
    if tell(thread) > 0 then break end
  end
end
redis.call('DEL', KEYS[1])
return code
