-- readrenew: raise the expiries of many read locks, each for its owner.
-- KEYS[2i-1] lock hash   KEYS[2i] the owner's first timeout key   ARGV[2i-1] lease, ms   ARGV[2i] owner
-- an array: 1 renewed, 0 gone, -4 no lock hash, -5 refused for now
--
-- All is as in renew. The first timeout key counts for all re-entries of its owner: the longest
-- one is what a reader has. If it is not there (evicted, say) it is made anew, for the hash has
-- the owner still.
local codes = {}
for i = 1, #KEYS / 2 do
  local lease, owner = tonumber(ARGV[2 * i - 1]), ARGV[2 * i]
  local held = redis.pcall('HEXISTS', KEYS[2 * i - 1], owner)
  local reply = held
  if held == 1 then
    reply = redis.pcall('PEXPIRE', KEYS[2 * i - 1], math.max(redis.call('PTTL', KEYS[2 * i - 1]), lease))
    if type(reply) ~= 'table' then
      reply = redis.pcall('PEXPIRE', KEYS[2 * i], math.max(redis.call('PTTL', KEYS[2 * i]), lease))
    end
    if reply == 0 then
      reply = redis.pcall('SET', KEYS[2 * i], '1', 'PX', lease)
      if reply['err'] then held, reply = -5, 0 else reply = 1 end
    end
  elseif held == 0 then
    reply = redis.pcall('HDEL', KEYS[2 * i - 1], owner)
  end
  codes[i] = held
  if type(reply) == 'table' then
    local err = string.gsub(reply['err'], '^@user_script: %d+: %-', '') -- up to Redis 6.2
    local why = string.match(err, '^%u+')
    if why == 'WRONGTYPE' then
      codes[i] = -4
    elseif held ~= 0 or why == 'READONLY' or why == 'MISCONF' or why == 'NOREPLICAS' then
      return reply
    else
      codes[i] = -5
    end
  end
end
return codes
