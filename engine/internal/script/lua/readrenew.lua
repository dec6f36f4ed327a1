-- readrenew: raise the expiries of many read locks, each for its owner.
-- KEYS[2i-1] lock hash   KEYS[2i] the owner's first timeout key   ARGV[2i-1] lease, ms   ARGV[2i] owner
-- an array: 1 renewed, 0 gone, -4 no lock hash, -5 refused for now
--
-- All is as in renew. The first timeout key counts for all re-entries of its owner: the longest
-- one is what a reader has. If it is not there (evicted, say) it is made anew, for the hash has
-- the owner still.
local codes = {}
for i = 1, #KEYS / 2 do
  local key, timeout = KEYS[2 * i - 1], KEYS[2 * i]
  local lease, owner = tonumber(ARGV[2 * i - 1]), ARGV[2 * i]
  local held = redis.pcall('HEXISTS', key, owner)
  local reply = held
  if held == 1 then
    reply = redis.pcall('PEXPIRE', key, math.max(redis.call('PTTL', key), lease))
    if type(reply) ~= 'table' then
      reply = redis.pcall('PEXPIRE', timeout, math.max(redis.call('PTTL', timeout), lease))
    end
    if reply == 0 then
      reply = redis.pcall('SET', timeout, '1', 'PX', lease)
      if reply['err'] then held, reply = -5, 0 else reply = 1 end
    end
  elseif held == 0 then
    reply = redis.pcall('HDEL', key, owner)
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
