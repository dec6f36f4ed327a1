-- renew: raise the expiry of many locks, each for its owner.
-- KEYS[i] lock hash   ARGV[2i-1] lease, ms   ARGV[2i] owner
-- an array: 1 renewed, 0 gone or another's, -4 no lock hash, -5 refused for now
--
-- Each lock is on its own: one key of a wrong type must not cost the others
-- their leases, hence pcall. What is absent is removed once more: on a primary that
-- does nothing, on a replica, which may be empty because it is being filled anew, it
-- is refused. Only a primary may say that a lock is gone.
local codes = {}
for i = 1, #KEYS do
  local lease, owner = ARGV[2 * i - 1], ARGV[2 * i]
  local code = 0
  local held = redis.pcall('HEXISTS', KEYS[i], owner)
  if type(held) == 'table' then
    code = -5
    if string.find(held['err'], 'WRONGTYPE', 1, true) then code = -4 end
  elseif held == 1 then
    code = 1
    if redis.call('PTTL', KEYS[i]) < tonumber(lease) then
      local raised = redis.pcall('PEXPIRE', KEYS[i], lease)
      if type(raised) == 'table' then code = -5 end
    end
  else
    local removed = redis.pcall('HDEL', KEYS[i], owner)
    if type(removed) == 'table' then code = -5 end
  end
  codes[i] = code
end
return codes
