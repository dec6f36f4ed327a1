-- writeretire: the writer's hold ends, but the lock stays taken for a while (MinHold).
-- KEYS[1] lock hash   ARGV[1] owner   ARGV[2] ms that the lock stays taken
-- ARGV[3] an owner that nobody is   ARGV[4] channel   ARGV[5] PUBLISH, SPUBLISH or ''
-- ARGV[6] base of timeout keys
-- 1: done   2: done, but the server refused the message   -3: nothing to release
--
-- Without readers beside the writer all is as in retire. With readers, nobody becomes one more, with a
-- timeout key that ends by itself: that keeps writers out for the rest, and lets readers in. The lock
-- is taken as long as the longest lease of its readers, as in rwrelease.
--
-- While the slot is being migrated, nobody's timeout key cannot be made at the node that the slot leaves.
-- Then nothing is done, and the engine asks again: when the slot has moved, or the MinHold is
-- over. (HDEL of what is absent shows that this user may remove the owner. Without it nobody would be
-- there already when this is asked again, and be taken for a reader.)
local owner, rest = ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', KEYS[1], owner) == 0 then
  redis.call('HDEL', KEYS[1], owner)
  return -3
end
local function timeout(of, i) return ARGV[6] .. ':' .. of .. ':rwlock_timeout:' .. i end
local function tell()
  local code = 1
  for _, message in ipairs({'1', '00'}) do -- as in rwrelease
    local _, refused = announce(ARGV[5], ARGV[4], message)
    if refused then code = 2 end
  end
  return code
end

if redis.call('HLEN', KEYS[1]) <= 2 then -- no readers
  redis.call('PEXPIRE', KEYS[1], rest)
  local code = tell()
  if redis.call('HEXISTS', KEYS[1], owner) == 1 then
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], ARGV[3], 1)
    redis.call('HDEL', KEYS[1], owner)
  end
  return code
end

redis.call('HDEL', KEYS[1], '')
local nobody = string.gsub(ARGV[3], ':write$', '')
local set = redis.pcall('SET', timeout(nobody, 1), '1', 'PX', rest)
if set.err then
  if string.find(set.err, 'non local key', 1, true) then
    return redis.error_reply('TRYAGAIN the slot is being migrated')
  end
  return set
end
redis.call('HSET', KEYS[1], 'mode', 'read', nobody, 1)
redis.call('HDEL', KEYS[1], owner)
local left, doubt = rest, false
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then doubt = true end
for f = 1, #fields, 2 do
  for i = 1, tonumber(fields[f + 1]) or 0 do
    local lease = redis.pcall('PTTL', timeout(fields[f], i))
    if lease == -2 then lease = redis.pcall('EXISTS', KEYS[1], timeout(fields[f], i)) end
    if type(lease) == 'table' or lease == -1 then doubt = true else left = math.max(left, lease) end
  end
end
if not doubt then redis.pcall('PEXPIRE', KEYS[1], left) end
return tell()
