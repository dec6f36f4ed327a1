-- rwrelease: give back a read lock, one of several holds of it, or a write lock.
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] count afterwards; 0: its last hold ends
-- ARGV[3] base of timeout keys   ARGV[4] message   ARGV[5] channel   ARGV[6] PUBLISH, SPUBLISH or ''
-- 1: done   2: done, but the server refused the message   -3: the owner holds nothing here
--
-- Of readers that are left the longest lease counts; looking for it ends with one that has
-- nearly all that the hash has, which mostly is one of a few that are looked at first. If none has a timeout key any more, they are gone, and so is the
-- lock. A writer that leaves readers behind tells, for others may read now, and so does who makes
-- the time of the hash shorter, for others sleep until then. While a writer has it, its lease
-- counts, and is left alone.
--
-- A 1 wakes all threads of Redisson's that sleep. One that has been refused, and does not sleep
-- yet, misses it. So a 0 follows, which Redisson keeps for one that comes to sleep. It is written
-- as 00: Redisson reads the number, and engines, which count messages, ignore it.
--
-- Only the hash is declared: a second key would make every release fail with TRYAGAIN while the
-- slot is being migrated. Then timeout keys may be elsewhere. On the node that they leave they
-- are refused; on the other one they only seem to be absent, so EXISTS is asked with two keys,
-- which that refuses (in other words since Redis 8 and Valkey 8). Who is in doubt changes nothing.
-- But nobody (see writeretire) never leaves: the last reader beside nobody, in doubt whether the
-- MinHold is over, is refused before it is released, and the engine asks again. Else the lock would
-- be taken for the lease of a reader that has gone.
--
-- A mode alone keeps writers out, and nobody would take it away: the last one leaves with rights
-- that it has shown. So does a writer that leaves readers behind. What comes after the owner has gone
-- is refused to nobody: asked again, this would find nothing, and tell nobody.
local owner, count = ARGV[1], tonumber(ARGV[2])
local field = redis.call('HGET', KEYS[1], owner)
local had = tonumber(field or 0) or 0
local function timeout(of, i) return ARGV[3] .. ':' .. of .. ':rwlock_timeout:' .. i end

local size = redis.call('HLEN', KEYS[1]) -- who may not is refused before anything is given back
local others = size > 2
local reads = ARGV[4] == '0'
local messages = reads and {'0'} or {'1', '00'}
if reads and count == 0 and field and size == 3 then -- mode, the owner, and one more
  for _, of in ipairs(redis.pcall('HGETALL', KEYS[1])) do
    if of ~= owner and string.find(of, ':%-%d+$') then -- nobody
      local rest = redis.pcall('PTTL', timeout(of, 1))
      if rest == -2 then rest = redis.pcall('EXISTS', KEYS[1], timeout(of, 1)) end
      local why = type(rest) == 'table' and rest.err or ''
      if string.find(why, 'non local key', 1, true) or string.find(why, 'rehashing of the slot', 1, true) then
        return redis.error_reply('TRYAGAIN the slot is being migrated')
      end
    end
  end
end
if others and not reads and field then
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
if count > 0 then
  redis.call('HDEL', KEYS[1], '') -- a write that needs no memory, as in leave
  if redis.call('HEXISTS', KEYS[1], owner) == 0 then return -3 end
  redis.call('HSET', KEYS[1], owner, count)
elseif redis.call('HDEL', KEYS[1], owner) == 0 then
  local i = 1 -- Redisson's forceUnlock leaves the timeout keys of readers
  while reads and redis.pcall('DEL', timeout(owner, i)) == 1 do i = i + 1 end
  return -3
end
if reads then
  for i = count + 1, had do redis.pcall('DEL', timeout(owner, i)) end
end

local tell = not reads
if redis.call('HLEN', KEYS[1]) < 2 then -- nobody is left
  if redis.call('HDEL', KEYS[1], 'mode') == 0 then redis.pcall('DEL', KEYS[1]) end
  tell = true
elseif not reads or redis.call('HGET', KEYS[1], 'mode') == 'read' then
  local ttl, left, doubt = redis.pcall('PTTL', KEYS[1]), 0, false
  if type(ttl) == 'table' then ttl, doubt = 0, true end
  local enough = ttl - ttl / 10
  local fields = {}
  for _, of in ipairs(redis.pcall('HRANDFIELD', KEYS[1], 3)) do -- from Redis 6.2 on
    local lease = redis.pcall('PTTL', timeout(of, 1))
    if type(lease) ~= 'table' then left = math.max(left, lease) end
  end
  if left < enough then fields = redis.pcall('HGETALL', KEYS[1]) end
  if fields.err then doubt = true end
  for f = 1, #fields, 2 do
    for i = 1, tonumber(fields[f + 1]) or 0 do
      local lease = redis.pcall('PTTL', timeout(fields[f], i))
      if lease == -2 then lease = redis.pcall('EXISTS', KEYS[1], timeout(fields[f], i)) end
      if type(lease) == 'table' or lease == -1 then doubt = true else left = math.max(left, lease) end
      if doubt or left >= enough then break end
    end
    if doubt or left >= enough then break end
  end
  if not doubt and left < enough then
    if left > 1 then redis.pcall('PEXPIRE', KEYS[1], left) else redis.pcall('DEL', KEYS[1]) end
    tell = true
  end
end

local code = 1
if not tell then return code end
for _, message in ipairs(messages) do
  local _, refused = announce(ARGV[6], ARGV[5], message)
  if refused then code = 2 end
end
return code
