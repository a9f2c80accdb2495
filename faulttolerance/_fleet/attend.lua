-- Who is there: the twin of Memory's answer to Attend.
-- KEYS[1]: a hash of the moments at which processes were there. ARGV: the process, and for how long it is.
-- Gives how many are. It writes in any case, so a server that refuses that is found out.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, length = KEYS[1], tonumber(ARGV[2])

redis.call('HSET', key, ARGV[1], string.format('%.0f', now))
local all, count = redis.call('HGETALL', key), 0
for place = 1, #all, 2 do
  local at = tonumber(all[place + 1])
  if at > now or at <= now - length then
    redis.call('HDEL', key, all[place])
  else
    count = count + 1
  end
end
local lasting = math.ceil(length / 1000)
if redis.call('PTTL', key) < lasting then redis.call('PEXPIRE', key, string.format('%.0f', lasting)) end
return count
