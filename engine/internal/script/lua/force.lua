-- force: take the lock away from whoever has it.
-- KEYS[1] lock hash   ARGV[1] the only owner to take it from, or ''   ARGV[2] channel
-- ARGV[3] PUBLISH, SPUBLISH or ''
-- 1: it was held and is free now   0: not held, or not by that owner
if redis.call('HLEN', KEYS[1]) == 0 then return 0 end
if ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '' then redis.call(ARGV[3], ARGV[2], '0') end
return 1
