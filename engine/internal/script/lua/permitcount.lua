-- permitcount: how many permits a semaphore has.
-- KEYS[1] number of permits that are to be had   KEYS[2] ids that are held, by when they expire
-- ARGV[1] channel   ARGV[2] PUBLISH, SPUBLISH or ''
-- an array: how many are to be had, how many are held
--
-- Permits that have expired come back first, and are announced, as with Redisson. A user who may
-- not count takes back none. Of a key that has gone nothing may be asked while its slot is being
-- migrated, so the held are counted first.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local value = redis.call('GET', KEYS[1])
if not value then -- only a primary may say so; this does nothing there
  local reply = redis.pcall('ZREM', KEYS[2], '')
  if type(reply) == 'table' and string.find(reply.err, 'READONLY', 1, true) then return reply end
end
value = tonumber(value or 0)
if not value then return redis.pcall('HLEN', KEYS[1]) end -- a string that is no number: WRONGTYPE
local held = redis.call('ZCARD', KEYS[2])
if redis.call('ZCOUNT', KEYS[2], 0, now) > 0 then
  local may = redis.pcall('INCRBY', KEYS[1], 0)
  if type(may) == 'table' and not string.find(may.err, 'OOM', 1, true) then return may end
  local back = redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, now)
  held = held - back
  value = redis.call('INCRBY', KEYS[1], back)
  if value > 0 then announce(ARGV[2], ARGV[1], value) end
end
return {value, held}
