-- permitrenew: raise the expiry of permits, of one holder or of many.
-- KEYS[i] ids that are held, by when they expire
-- ARGV, for each key: lease, ms; how many ids; the ids
-- an array: 1 renewed, 0 not all of them are held, -4 no such key, -5 refused for now
--
-- Each holder is on its own, by pcall, and errors are passed on as in renew. An id that has
-- expired is not held: the next script counts it as free. It needs one key of a semaphore only,
-- so that a slot that is being migrated does not keep the two keys of one apart.
--
-- ZREM of what is absent does nothing, but it is a write that needs no memory: a server that has
-- none left lets the rest pass, too, and a replica refuses it.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local codes, at = {}, 1
for i = 1, #KEYS do
  local ends, last = now + tonumber(ARGV[at]), at + 1 + tonumber(ARGV[at + 1])
  local held, raise = 1, {}
  local reply = redis.pcall('ZREM', KEYS[i], '')
  for j = at + 2, last do
    if type(reply) == 'table' then break end
    local score = redis.pcall('ZSCORE', KEYS[i], ARGV[j])
    if type(score) == 'table' then
      reply = score
    elseif not score or tonumber(score) <= now then
      held = 0
    else
      raise[#raise + 1] = string.format('%.0f', math.max(tonumber(score), ends))
      raise[#raise + 1] = ARGV[j]
    end
  end
  at = last + 1
  if type(reply) ~= 'table' and held == 1 then
    reply = redis.pcall('ZADD', KEYS[i], 'XX', unpack(raise))
  end
  codes[i] = held
  if type(reply) == 'table' then
    local err = string.gsub(reply['err'], '^@user_script: %d+: %-', '') -- up to Redis 6.2
    local why = string.match(err, '^%u+')
    if why ~= 'WRONGTYPE' then return reply end
    codes[i] = -4
  end
end
return codes
