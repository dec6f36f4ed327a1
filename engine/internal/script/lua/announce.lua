-- announce: tell those who listen on a channel. This text comes before the scripts that do so.
-- The verb is PUBLISH, SPUBLISH or BOTH, or '' for a lock whose waiters poll. A right to publish may be
-- missing: that costs nobody the rest of the script. The commands are literals, here and in all scripts:
-- some servers read a script before they run it, and refuse one that calls a command by a variable.
local function announce(verb, channel, message) -- how many hear it, and whether it was refused
  local heard, refused = 0, false
  if verb == 'PUBLISH' or verb == 'BOTH' then
    local reply = redis.pcall('PUBLISH', channel, message)
    if type(reply) == 'number' then heard = reply else refused = true end
  end
  if verb == 'SPUBLISH' or verb == 'BOTH' then
    local reply = redis.pcall('SPUBLISH', channel, message)
    if type(reply) == 'number' then heard = heard + reply else refused = true end
  end
  return heard, refused
end

-- tellOfRemoval is for who had nothing to release. If the lock is free, it was removed without a message (DEL,
-- FLUSHALL, a failover). Those who wait elsewhere sleep until the lease that they were told of: now they ask.
-- So may those who wait for a writer, if readers have the lock by now.
local function tellOfRemoval(verb, channel, messages)
  if redis.pcall('PTTL', KEYS[1]) ~= -2 and (#messages < 2 or redis.pcall('HGET', KEYS[1], 'mode') ~= 'read') then return end
  for _, message in ipairs(messages) do announce(verb, channel, message) end
end

