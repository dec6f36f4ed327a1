-- counter: operations on the count of a semaphore or a latch, each of them once.
-- KEYS[1] the count   KEYS[2] the mark of the engine that asks, unless it only looks
-- ARGV[1] the number of the command, 0 if it only looks   ARGV[2] channel
-- ARGV[3] PUBLISH or SPUBLISH   ARGV[4], ... operations: a letter and a number
-- an array: an answer for each operation, and then 1, or 2 if a message was refused
-- -4: the key is no count   -6: a later command of this engine has been executed
--
--   a acquire    1, or 0 if there are not so many, or one that waits was refused before it
--   t try        the same, or -7 if nobody has set a count; and it does not wait: those behind it may want less
--   r release    1
--   p add        1; may be negative. As with Redisson, the key's expiry is dropped
--   s set        1, or 0 if there is a count already
--   d drain      what there was; as with Redisson, the expiry is dropped
--   c count down 1; the key goes at zero
--   l set latch  1, or 0 if there is a count already
--   v look       the count, 0 if there is none
--
-- The operations are deltas. So the mark has the number of the engine's latest command and
-- what it was answered: a copy of that gets the same answer, and a copy of an earlier one
-- does nothing. The mark is written before the count, because the first write is the one that
-- the server may refuse for lack of memory; if the count is refused, the mark is taken back.
-- What gives back writes an expiry then: it needs no memory, and lets the rest pass.
local number = tonumber(ARGV[1])
local mark = false
if number > 0 then
  mark = redis.call('GET', KEYS[2])
  local last, said = string.match(mark or '', '^(%d+) (.*)$')
  last = tonumber(last)
  if last and last > number then return -6 end
  if last == number then
    if said == '!' then return -4 end
    local codes = {}
    for code in string.gmatch(said, '%S+') do codes[#codes + 1] = tonumber(code) end
    codes[#codes + 1] = 1
    return codes
  end
end

local count = redis.pcall('GET', KEYS[1])
local wrong = type(count) == 'table'
if wrong and not string.find(count.err, 'WRONGTYPE', 1, true) then return count end
if not wrong and count then
  count = string.match(count, '^%-?%d+$') and tonumber(count)
  wrong = not count or math.abs(count) > 9007199254740992
end
local function remember(answers) -- what the server says if it refuses
  local text = ARGV[1] .. ' ' .. answers
  local set = redis.pcall('SET', KEYS[2], text, 'PX', 60000)
  if not set.err then return nil end
  if not string.find(ARGV[4], '^[rc]') then return set end
  redis.call('PEXPIRE', KEYS[2], 60000)
  redis.call('SET', KEYS[2], text, 'PX', 60000)
end
if wrong then return number > 0 and remember('!') or -4 end
count = count or nil
if number == 0 and not count then -- only a primary may say so; this does nothing there
  local reply = redis.pcall('PEXPIRE', KEYS[1], 60000)
  if type(reply) == 'table' and string.find(reply.err, 'READONLY', 1, true) then return reply end
end

local before, codes, said, messages = count, {}, {}, {}
local refused, grown, fresh = false, false, false
for i = 4, #ARGV do
  local what, n, code = string.sub(ARGV[i], 1, 1), tonumber(string.sub(ARGV[i], 2)), 1
  if what == 'a' or what == 't' then
    if refused or not count or count < n then
      code, refused = (refused or count or what == 'a') and 0 or -7, refused or what == 'a'
    else
      count = count - n
    end
  elseif what == 'r' then
    count, grown = (count or 0) + n, true
  elseif what == 'p' then
    count, grown, fresh = (count or 0) + n, grown or n > 0, true
  elseif what == 's' then
    if count then code = 0 else count, grown = n, true end
  elseif what == 'd' then
    code = count or 0
    if count then count, fresh = 0, true end
  elseif what == 'c' then
    count = (count or 0) - 1
    if count == 0 then messages[#messages + 1] = '0' end
    if count <= 0 then count = nil end
  elseif what == 'l' then
    if count then
      code = 0
    else
      count, fresh = n, true
      messages[#messages + 1] = '1'
    end
  else
    code = count or 0
  end
  codes[#codes + 1] = code
  said[#said + 1] = string.format('%.0f', code)
end

local refusal = number > 0 and remember(table.concat(said, ' '))
if refusal then return refusal end
local wrote = true
if count and (fresh or not before) then
  wrote = redis.pcall('SET', KEYS[1], string.format('%.0f', count))
elseif count and count ~= before then
  wrote = redis.pcall('INCRBY', KEYS[1], string.format('%.0f', count - before))
elseif before and not count then
  wrote = redis.pcall('DEL', KEYS[1])
end
if type(wrote) == 'table' and wrote.err then
  redis.call('SET', KEYS[2], mark or (number - 1) .. ' ', 'PX', 60000)
  return wrote
end

-- Redisson wakes as many threads as the message says, and can count to 2^31 - 1.
if grown and count and count > 0 then
  messages[#messages + 1] = string.format('%.0f', math.min(count, 2147483647))
end
local heard = 1
for i = 1, #messages do
  local _, refused = announce(ARGV[3], ARGV[2], messages[i])
  if refused then heard = 2 end
end
codes[#codes + 1] = heard
return codes
