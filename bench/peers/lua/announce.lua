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
