-- fairqueue: the queue of a fair lock. This text comes before fair, fairrelease and fairforce.
-- KEYS[2] queue, a list   KEYS[3] until when its owners are waited for, a zset
-- ARGV[2] prefix of the owners' channels   ARGV[3] PUBLISH or SPUBLISH
-- ARGV[4] '1': who publishes learns whether anybody hears   ARGV[5] ms that each place in the queue counts
--
-- The queue is Redisson's: an owner is waited for until its score, in ms since 1970. One whose score
-- is over loses its place, and is told, as it may live: Redisson does not raise the score of a
-- thread that waits, and gives one that waits for 60 s room for 60 ms. Then it asks, and comes in
-- again at the end. The time is the server's.
--
-- Whoever finds the lock free wakes the head. If nobody hears it, it has 3 seconds to ask: a process
-- that has died does not hold up the queue for longer. So those behind it are told at once, too,
-- until one is heard: they may be of the same process, and have the same 3 seconds. But threads of
-- Redisson are told only if nobody of ours is: while it is not their turn they ask again without a
-- pause. Nor have they 3 seconds: one that is about to listen would ask, sleep, and not have its
-- score raised. Nor has who is behind one: it would lose its place when the thread has the lock, as that
-- takes a room away from all others. Owners of ours have long numbers.
--
-- A process that is paused is heard, and does not ask. When the time of its first owner is over, those of
-- the same process that come next have 3 seconds, too; while the lock is held, after its lease. One that
-- lives asks when it is told, and has its score raised. One that may not have been told keeps its time.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local room, near = tonumber(ARGV[5]), 50
local function ask(reply) return reply end -- in fairrelease the calls are pcalls, and it goes on where one is refused

local function process(of) return string.match(of, '^(.*):%d%d%d%d%d%d%d%d%d%d%d%d+$') end -- of ours

local function tell(other) return announce(ARGV[3], ARGV[2] .. ':' .. other, '0') end

local function hurry(other, left) -- it has 3 seconds to ask, after a lease; false: it has no more already
  local score, due = tonumber(ask(redis.call('ZSCORE', KEYS[3], other)) or nil), now + left + 3000
  if not score or score <= due then return false end
  ask(redis.call('ZADD', KEYS[3], due, other))
  return true
end

local function findHead() -- the first whose time is not over, and the last whose time is
  local head, over = ask(redis.call('LINDEX', KEYS[2], 0)), nil
  while head do
    local score = ask(redis.call('ZSCORE', KEYS[3], head))
    if score == nil or score and tonumber(score) > now then break end
    if not ask(redis.call('LPOP', KEYS[2])) then break end
    ask(redis.call('ZREM', KEYS[3], head))
    tell(head)
    over = head
    head = ask(redis.call('LINDEX', KEYS[2], 0))
  end
  return head, over
end

-- Those that come nearer to the lock have room for the lease and for their places, no more and no less;
-- nobody has more time than before if the lock is free, or only one whose time was over has gone: those
-- behind it may be dead. With thousands of waiters it would take a second for each hundred that
-- leave, if all were looked at. So it is the first few. The rest may have a little too much, by one place
-- in fifty: when the first or the last of them has more than that, all are looked at.
local function comeNearer(place, left, raises) -- those from that place on
  local to, size = near, ask(redis.call('LLEN', KEYS[2])) or 0
  if size > near then
    for _, at in ipairs({near + 1, size}) do
      local other = ask(redis.call('LINDEX', KEYS[2], at - 1))
      local score = other and tonumber(ask(redis.call('ZSCORE', KEYS[3], other)) or nil)
      if score and score > now + left + math.max((at + size / near) * room, 10000) then to = size end
    end
  end
  for i, other in ipairs(ask(redis.call('LRANGE', KEYS[2], place - 1, to - 1)) or {}) do
    local score = tonumber(ask(redis.call('ZSCORE', KEYS[3], other)) or nil)
    if score then
      local due = now + left + math.max((place + i - 1) * room, 10000) -- it asks every 10 seconds
      if due < score or raises then ask(redis.call('ZADD', KEYS[3], due, other)) end
    end
  end
end

local function passOver(over, left, asker) -- one whose time was over, and those of its process
  if not over then return end
  comeNearer(1, left, false)
  if not process(over) then return end
  for _, other in ipairs(ask(redis.call('LRANGE', KEYS[2], 0, -1)) or {}) do
    if other == asker or process(other) ~= process(over) then return end
    local _, refused = tell(other)
    if not refused then hurry(other, left) end
  end
end

local few, first = {}, 1
local function at(place) -- the owner there, nil behind the last; a few are read at once
  if place < first or place >= first + #few then
    few, first = ask(redis.call('LRANGE', KEYS[2], place - 1, place + near - 2)) or {}, place
  end
  return few[place - first + 1]
end

local function wake(head, free, asker) -- whether a message was refused
  local threads, anyRefused, shares, place, other = {}, false, free, 1, head
  while other do
    if other == asker then return anyRefused end -- it asks again soon
    if place > 1 and not process(other) then
      threads[#threads + 1] = other
    else
      local heard, refused = tell(other)
      anyRefused = anyRefused or refused
      if heard > 0 or refused or ARGV[4] ~= '1' then return anyRefused end -- mostly the head is heard
      local hurried = shares and hurry(other, 0)
      if asker and shares and not hurried then return anyRefused end -- those behind it have been told before
    end
    shares = shares and process(other)
    place = place + 1
    other = at(place)
  end
  for _, thread in ipairs(threads) do
    if tell(thread) > 0 then break end
  end
  return anyRefused
end

