-- front: the engines that wait for a lock queue at the server; the first of them, its front, listen for releases.
-- This text comes before the scripts that have that queue, a zset of engines in the order in which they came, as
-- their last key. Each engine has a channel of its own: ARGV[2], a colon, the engine.
-- KEYS[#KEYS] queue
-- ARGV[1] engine, or an owner of it   ARGV[2] prefix of the engines' channels   ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '1': PUBLISH counts all listeners   ARGV[5] places in the front
local engine, front = string.match(ARGV[1], '^[^:]*'), tonumber(ARGV[5])

-- tell tells the engines in the front, from a place on, that they are in it. One that does not hear has gone, and
-- loses its place. It drops at most 100, for a server has other things to do.
local function tell(place)
  for _ = 1, front + 100 do
    local next = place < front and redis.call('ZRANGE', KEYS[#KEYS], place, place)[1]
    if not next then return end
    local heard, refused = announce(ARGV[3], ARGV[2] .. ':' .. next, '0')
    if ARGV[4] == '1' and heard == 0 and not refused then
      redis.call('ZREM', KEYS[#KEYS], next)
    else
      place = place + 1
    end
  end
end
