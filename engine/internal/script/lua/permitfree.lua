-- permitfree: give permits back, by their ids, and wake who waits.
-- KEYS[1] number of permits that are to be had   KEYS[2] ids that are held, by when they expire
-- ARGV[1] channel   ARGV[2] PUBLISH, SPUBLISH or ''   ARGV[3...] ids
-- 1: all given back   2: the same, but the server refused the message
-- -3: not all of them were held; those that were are given back
--
-- An id comes back once, so a repeat is harmless. One that has expired, and
-- that nobody took meanwhile, was held until now. The message is the number that can be had now, by
-- which Redisson wakes as many: never 0, and never less. The first write needs no memory, so that
-- a server that has none left lets the rest pass, too. It takes nothing away: who may not do all of
-- this is refused before any id is gone.
redis.call('ZREM', KEYS[2], '')
local back = 0
for i = 3, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[i]) then back = back + 1 end
end
if back == 0 then return -3 end
local value = redis.pcall('INCRBY', KEYS[1], back)
local refused = type(value) == 'table'
if not refused or string.find(value.err, 'WRONGTYPE', 1, true) then
  redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
end
if refused then return value end
local _, refused
if value > 0 then _, refused = announce(ARGV[2], ARGV[1], value) end
if back < #ARGV - 2 then return -3 end
return refused and 2 or 1
