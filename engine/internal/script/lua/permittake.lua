-- permittake: take permits of a semaphore, each under an id of its own.
-- KEYS[1] number of permits that are to be had   KEYS[2] ids that are held, by when they expire
-- ARGV[1] lease, ms   ARGV[2] channel   ARGV[3] PUBLISH, SPUBLISH or ''   ARGV[4...] ids
-- -2: granted, all of them   >= 0: too few, ms until the next one expires   -1: too few, none expires
-- -7: nobody has said how many there are
--
-- Permits that have expired come back first, as with Redisson. What is left of them is announced,
-- also if the rest is refused: if they were all, that is so while the slot is being migrated.
-- An id that is there already was granted by this: ids are used once, so a repeat is harmless. A
-- user who may not count gets no permit, and takes back none. If the semaphore has an expiry, so
-- have the ids.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = string.format('%.0f', now + tonumber(ARGV[1]))
if redis.call('ZSCORE', KEYS[2], ARGV[4]) then
  for i = 4, #ARGV do redis.call('ZADD', KEYS[2], 'XX', ends, ARGV[i]) end
  return -2
end
local n, code = #ARGV - 3, -1
local value = redis.call('GET', KEYS[1])
if not value then -- a replica may not say so
  redis.call('ZREM', KEYS[2], '')
  code = -7
end
value = tonumber(value or 0)
if not value then return redis.pcall('HLEN', KEYS[1]) end -- a string that is no number: WRONGTYPE
local back = 0
if redis.call('ZCOUNT', KEYS[2], 0, now) > 0 then
  local may = redis.pcall('INCRBY', KEYS[1], 0)
  if type(may) == 'table' and not string.find(may.err, 'OOM', 1, true) then return may end
  back = redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, now)
  value = redis.call('INCRBY', KEYS[1], back)
end
if value >= n then
  local ids = {}
  for i = 4, #ARGV do
    ids[#ids + 1] = ends
    ids[#ids + 1] = ARGV[i]
  end
  local added = redis.pcall('ZADD', KEYS[2], unpack(ids))
  if type(added) == 'table' then
    code = added
  else
    local taken = redis.pcall('DECRBY', KEYS[1], n)
    if type(taken) == 'table' then
      redis.call('ZREM', KEYS[2], unpack(ARGV, 4))
      code = taken
    else
      value = taken
      local left = redis.call('PTTL', KEYS[1])
      if left > 0 then redis.pcall('PEXPIRE', KEYS[2], left) end
      code = -2
    end
  end
else
  local first = redis.pcall('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local left = tonumber(first[2] or -1)
  if left > 0 and left < 922337203685477 then code = left - now end
  if first.err then code = first end
end
if back > 0 and value > 0 then announce(ARGV[3], ARGV[2], value) end
return code
