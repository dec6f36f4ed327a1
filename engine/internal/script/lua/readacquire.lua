-- readacquire: take a read lock for a fresh owner.
-- KEYS[1] lock hash   KEYS[2] the owner's timeout key
-- ARGV[1] lease, ms   ARGV[2] owner   ARGV[3] a writer beside which it may read, or ''
-- -2: granted   >= 0: a writer has it, ms left   -1: the same, no expiry   -3: that writer is not there
--
-- The field's presence decides, never its number, so a repeat is harmless. A hash without a
-- mode is another lock's, and held. The timeout key comes first: it ends by itself, and a user
-- who may not set the expiry of the hash gets no lock.
local ttl = redis.call('PTTL', KEYS[1])
local again = ttl ~= -2 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
if ARGV[3] ~= '' and not again and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return -3 end
if ttl ~= -2 then
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if mode ~= 'read' and not (mode == 'write' and (again or ARGV[3] ~= '')) then return ttl end
end
local lease = tonumber(ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', math.max(lease, redis.call('PTTL', KEYS[2])))
if ttl == -2 then
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1) -- at once: a mode alone would be a lock for good
else
  redis.call('HSETNX', KEYS[1], ARGV[2], 1)
end
if ttl < lease then
  local set = redis.pcall('PEXPIRE', KEYS[1], lease)
  if type(set) == 'table' then
    redis.call('HDEL', KEYS[1], ARGV[2])
    if ttl == -2 then redis.call('HDEL', KEYS[1], 'mode') end
    return set
  end
end
return -2
