-- several: release owners that nobody wants, and then, if asked to, take the lock for a fresh one.
-- KEYS[1] lock hash   KEYS[2] counter of tokens, if the lock is taken and has one
-- ARGV[1] channel   ARGV[2] PUBLISH, SPUBLISH or ''
-- ARGV[3] lease, ms   ARGV[4] the owner that takes it, or ''   ARGV[5], ... owners to be released
-- an array: 1, 2 or -3 for each that is released, as release answers; then, if an owner takes
-- it, what acquire answers, or the error of that, and the token, if it was granted one
--
-- A server that refuses every write refuses the releases, which are one, and so all of it. If only the
-- taking is refused, for want of a right, the releases have been done by then: so that error is
-- an element. (A server without memory lets it pass after a release.) Nobody is woken for a
-- lock that is taken again. While the slot is being migrated nothing may be asked of a hash that
-- has gone: so the releases are one, and the taking is an element then, too.
local codes = {}
for i = 5, #ARGV do
  codes[i - 4] = redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 and 1 or -3
end
local released = redis.call('HDEL', KEYS[1], unpack(ARGV, 5)) > 0
local taken, token
if ARGV[4] ~= '' then
  taken = redis.pcall('PTTL', KEYS[1])
  if taken == -2 then
    token = KEYS[2] and redis.pcall('INCR', KEYS[2])
    local reply = type(token) == 'table' and token or redis.pcall('HSET', KEYS[1], ARGV[4], 1)
    if type(reply) ~= 'table' then
      reply = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
      if type(reply) == 'table' then redis.call('HDEL', KEYS[1], ARGV[4]) end
    end
    if type(reply) == 'table' then taken = reply end
  elseif type(taken) ~= 'table' and redis.call('HEXISTS', KEYS[1], ARGV[4]) == 1 then
    if taken < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
    token = KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2]))
    taken = -2
  end
end
if released and taken ~= -2 then
  local _, refused = announce(ARGV[2], ARGV[1], '0')
  for i = 1, #codes do
    if codes[i] == 1 and refused then codes[i] = 2 end
  end
end
codes[#codes + 1] = taken
if taken == -2 then codes[#codes + 1] = token end
return codes
