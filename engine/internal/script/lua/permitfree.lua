-- permitfree: give permits back, by their ids, and wake who waits.
-- KEYS[1] number of permits that are to be had   KEYS[2] ids that are held, by when they expire
-- ARGV[1] channel   ARGV[2] PUBLISH, SPUBLISH, BOTH or ''   ARGV[3...] ids
-- 1: all given back   2: the same, but the server refused the message
-- -3: not all of them were held; those that were are given back
--
-- An id comes back once, so a repeat is harmless. One that has expired, and
-- that nobody took meanwhile, was held until now. The message is the number that can be had now, by
-- which Redisson wakes as many: never 0, and never less. The first write needs no memory, so that
-- a server that has none left lets the rest pass, too.
local back = redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
if back == 0 then return -3 end
local value = redis.pcall('INCRBY', KEYS[1], back)
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then -- they have expired: who may count takes them back
    for i = 1, back do redis.call('ZADD', KEYS[2], 0, ARGV[2 + i]) end
  end
  return value
end
local code, verb = 1, ARGV[2]
if value > 0 then
  if verb == 'BOTH' then
    if type(redis.pcall('PUBLISH', ARGV[1], value)) == 'table' then code = 2 end
    verb = 'SPUBLISH'
  end
  if verb ~= '' and type(redis.pcall(verb, ARGV[1], value)) == 'table' then code = 2 end
end
if back < #ARGV - 2 then return -3 end
return code
