-- announce: tell those who listen on a channel. This text comes before the scripts that do so.
-- The verb is PUBLISH, SPUBLISH, or '' for a lock whose waiters poll. A right to publish may be
-- missing: that costs nobody the rest of the script. The commands are literals, here and in all scripts:
-- some servers read a script before they run it, and refuse one that calls a command by a variable.
local function announce(verb, channel, message) -- how many hear it, and whether it was refused
  local heard = 0
  if verb == 'PUBLISH' then
    heard = redis.pcall('PUBLISH', channel, message)
  elseif verb == 'SPUBLISH' then
    heard = redis.pcall('SPUBLISH', channel, message)
  end
  if type(heard) == 'number' then return heard, false end
  return 0, true
end
