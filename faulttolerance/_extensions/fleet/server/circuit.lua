-- The circuits of a fleet, and who is there: the twin of circuits.py and of Memory's answer to Poll.
-- KEYS: a hash of all circuits, and a set of the processes, sorted by the moments at which they were there.
-- ARGV: "poll", the process, and for how long it is there; or "open" or "place", and the values of that request.
-- A circuit is told as version, state, wait, times reopened, reason, and whether a place was given.
-- "poll" gives how many processes there are, and then the name of each circuit and the circuit.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local IS_KEPT = 3600000000
local circuits, processes = unpack(KEYS)

local function lasts(key, length)
  local lasting = math.ceil(length / 1000)
  if redis.call('PTTL', key) < lasting then redis.call('PEXPIRE', key, string.format('%.0f', lasting)) end
end

local function store(name, circuit)
  redis.call('HSET', circuits, name, cmsgpack.pack(circuit))
  lasts(circuits, math.max(circuit.at, circuit.open) + IS_KEPT - now)
end

local function load(name, stored)
  local circuit = cmsgpack.unpack(stored)
  local ahead = circuit.at - now
  if ahead > 0 then
    circuit.at, circuit.open = now, circuit.open - ahead
    for holder, till in pairs(circuit.places) do circuit.places[holder] = till - ahead end
    store(name, circuit)
  end
  if now < math.max(circuit.at, circuit.open) + IS_KEPT then return circuit end
  redis.call('HDEL', circuits, name)
end

local function moved(before, delay, reopened, reason)
  return {
    version = math.max(now, before + 1), at = now, open = now + (delay or 0), is_open = delay ~= nil,
    reopened = reopened, reason = reason, successes = 0, wanted = 0, places = {}
  }
end

local function told(circuit, granted)
  if not circuit then return 0, 'closed', 0, 0, '', 0 end
  local state, wait = circuit.is_open and 'open' or 'closed', math.max(0, circuit.open - now)
  return circuit.version, state, wait, circuit.reopened, circuit.reason, granted
end

local function poll(process, length)
  local moment = string.format('%.0f', now)
  redis.call('ZADD', processes, moment, process)  -- a server that refuses to write is found out
  redis.call('ZREMRANGEBYSCORE', processes, '-inf', string.format('%.0f', now - length))
  redis.call('ZREMRANGEBYSCORE', processes, '(' .. moment, '+inf')
  lasts(processes, length)
  local found, all = {redis.call('ZCARD', processes)}, redis.call('HGETALL', circuits)
  for place = 1, #all, 2 do
    local circuit = load(all[place], all[place + 1])
    if circuit then
      for _, value in ipairs({all[place], told(circuit, 0)}) do found[#found + 1] = value end
    end
  end
  return found
end

local function open(name, circuit, seen, delay, reopened, reason)
  if circuit and circuit.version ~= tonumber(seen) then return {told(circuit, 0)} end
  circuit = moved(tonumber(seen), tonumber(delay), tonumber(reopened), reason)
  store(name, circuit)
  return {told(circuit, 0)}
end

local function place(name, circuit, version, holder, most, length, step)
  if not circuit or circuit.version ~= tonumber(version) or not circuit.is_open or circuit.open > now then
    return {told(circuit, 0)}
  end
  most, length, circuit.at = tonumber(most), tonumber(length), now
  if step == 'success' then circuit.successes = circuit.successes + 1 end
  local held, taken, granted = (circuit.places[holder] or now) > now, circuit.successes, 0
  for one, till in pairs(circuit.places) do
    if one == holder or till <= now then circuit.places[one] = nil else taken = taken + 1 end
  end
  if circuit.successes >= most then
    circuit = moved(circuit.version, nil, 0, '')
  elseif step == 'wish' and held and 0 < circuit.wanted and circuit.wanted < length then
    circuit.wanted = 0
  elseif step == 'wish' or step == 'start' then
    if taken < most then
      circuit.places[holder], granted = now + length, 1
      if not held then circuit.wanted = 0 end
    else
      circuit.wanted = math.min(circuit.wanted > 0 and circuit.wanted or length, length)
    end
  end
  store(name, circuit)
  return {told(circuit, granted)}
end

local asked, name = ARGV[1], ARGV[2]
if asked == 'poll' then return poll(name, tonumber(ARGV[3])) end
local stored = redis.call('HGET', circuits, name)
return ({open = open, place = place})[asked](name, stored and load(name, stored) or nil, unpack(ARGV, 3))
