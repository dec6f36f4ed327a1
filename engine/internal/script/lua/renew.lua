-- renew: raise the expiry of many locks, each for its owner.
-- KEYS[i] lock hash   ARGV[2i-1] lease, ms   ARGV[2i] owner
-- an array: 1 renewed, 0 gone or another's, -4 no lock hash, -5 refused for now
--
-- Each lock is on its own, by pcall: one key of a wrong type must not cost the
-- others their leases. What is absent is removed once more: on a primary that
-- does nothing, on a replica, which may be empty because it is being filled anew, it
-- is refused. Only a primary may say that a lock is gone. A server that refuses every
-- write (a replica, a full disk, too few replicas), or a command that renews (a right is
-- missing), refuses all of it, with an error of the whole script: so the client looks for
-- the primary, and can say what is wrong.
--
-- The expiry is written even if it is not raised: what WAIT counts, from Redis 7.2 on,
-- are the replicas that have what this connection has written.
local codes = {}
for i = 1, #KEYS do
  local lease, owner = ARGV[2 * i - 1], ARGV[2 * i]
  local held = redis.pcall('HEXISTS', KEYS[i], owner)
  local reply = held
  if held == 1 then
    reply = redis.pcall('PEXPIRE', KEYS[i], math.max(redis.call('PTTL', KEYS[i]), tonumber(lease)))
  elseif held == 0 then
    reply = redis.pcall('HDEL', KEYS[i], owner)
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
