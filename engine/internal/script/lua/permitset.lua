-- permitset: say how many permits a semaphore has, and wake who waits.
-- KEYS[1] number of permits that are to be had   KEYS[2] ids that are held, by when they expire
-- ARGV[1] try (if it has none yet), set (held ones count) or add   ARGV[2] number
-- ARGV[3] channel   ARGV[4] PUBLISH, SPUBLISH or ''
-- 1: done   2: done, but the server refused the message   0: it has permits already
--
-- There may be fewer than none to be had after that, as with Redisson: then so many of those that
-- are held must come back first.
local n = tonumber(ARGV[2])
local value = redis.call('GET', KEYS[1])
if value and not tonumber(value) then return redis.pcall('HLEN', KEYS[1]) end -- WRONGTYPE
if ARGV[1] == 'try' and value then
  redis.call('ZREM', KEYS[2], '') -- a replica may not say so
  return 0
end
if ARGV[1] ~= 'add' and not value then
  n = n - redis.call('ZCARD', KEYS[2]) -- those who hold some may have outlived the number
  redis.call('SET', KEYS[1], string.format('%.0f', n))
  value = n
else
  if ARGV[1] == 'set' then n = n - tonumber(value) - redis.call('ZCARD', KEYS[2]) end
  value = redis.call('INCRBY', KEYS[1], string.format('%.0f', n))
end
local _, refused
if n > 0 and value > 0 then _, refused = announce(ARGV[4], ARGV[3], value) end
return refused and 2 or 1
