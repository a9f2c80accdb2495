-- The circuits of a fleet: the twin of circuits.py, which says what is meant.
-- KEYS[1]: a hash of all circuits. ARGV: what is asked; then the circuit and the other values of the question.
-- "read" gives name, version, state, wait, reopened, reason of each; others whether a place was given, and the last five.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, asked, name = KEYS[1], ARGV[1], ARGV[2]
local CLOSED_IS_KEPT, OPEN_IS_KEPT = 3600000000, 86400000000

-- JSON of this server rounds large numbers, so they are texts there.
local NUMBERS = {'version', 'kept', 'until', 'delay', 'reopened', 'successes'}
local is_changed = false

local function text(number)
  return string.format('%.0f', number)
end

local function load(stored)
  local circuit = cjson.decode(stored)
  for _, field in ipairs(NUMBERS) do circuit[field] = tonumber(circuit[field]) end
  if circuit.kept <= now then return nil end
  if circuit.state == 'open' and circuit['until'] > now + circuit.delay then
    circuit['until'], is_changed = now + circuit.delay, true
  end
  for _, place in pairs(circuit.places) do
    place['until'], place.length = tonumber(place['until']), tonumber(place.length)
    if place['until'] > now + place.length then
      place['until'], is_changed = now + place.length, true
    end
  end
  return circuit
end

local function store(named, circuit)
  local stored = {state = circuit.state, reason = circuit.reason, wanted = circuit.wanted, places = {}}
  for _, field in ipairs(NUMBERS) do stored[field] = text(circuit[field]) end
  for holder, place in pairs(circuit.places) do
    stored.places[holder] = {['until'] = text(place['until']), length = text(place.length), used = place.used}
  end
  redis.call('HSET', key, named, cjson.encode(stored))
  local lasting = math.ceil((circuit.kept - now) / 1000)
  if redis.call('PTTL', key) < lasting then redis.call('PEXPIRE', key, text(lasting)) end
end

local function stamped(before, state, delay, reopened, reason)
  local kept = now + CLOSED_IS_KEPT
  if state ~= 'closed' then kept = now + delay + OPEN_IS_KEPT end
  is_changed = true
  return {
    version = math.max(now, before + 1), state = state, kept = kept, ['until'] = now + delay, delay = delay,
    reopened = reopened, reason = reason, successes = 0, wanted = false, places = {}
  }
end

local function told(circuit)
  if not circuit then return 0, 'closed', 0, 0, '' end
  local wait = 0
  if circuit.state == 'open' then wait = math.max(0, circuit['until'] - now) end
  return circuit.version, circuit.state, wait, circuit.reopened, circuit.reason
end

local function read()
  local all, found = redis.call('HGETALL', key), {}
  for place = 1, #all, 2 do
    is_changed = false
    local circuit = load(all[place + 1])
    if not circuit then
      redis.call('HDEL', key, all[place])
    else
      if is_changed then store(all[place], circuit) end
      local version, state, wait, reopened, reason = told(circuit)
      for _, value in ipairs({all[place], version, state, wait, reopened, reason}) do found[#found + 1] = value end
    end
  end
  return found
end

local function open(circuit)
  local seen, delay, reason = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
  if circuit and (circuit.version ~= seen or circuit.state ~= 'closed') then return circuit, 0 end
  return stamped(seen, 'open', delay, 0, reason), 0
end

local function lease(circuit)
  local version, holder, places, length = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  if not circuit or circuit.version ~= version or circuit.state == 'closed' then return circuit, 0 end
  if circuit.state == 'open' then
    if circuit['until'] > now then return circuit, 0 end
    circuit = stamped(version, 'half-open', 0, circuit.reopened, circuit.reason)
  end
  local live, others = {}, 0
  for one, place in pairs(circuit.places) do
    if place['until'] > now then
      live[one] = place
      if one ~= holder then others = others + 1 end
    end
  end
  local held = live[holder]
  is_changed = true
  if not held and circuit.successes + others >= places then
    circuit.wanted = true
    return circuit, 0
  end
  circuit.places = live
  if held and circuit.wanted and not held.used then
    circuit.wanted, live[holder] = false, nil
    return circuit, 0
  end
  local till, used = now + length, false
  if held then
    till, used = math.max(till, held['until']), held.used
  else
    circuit.wanted = false
  end
  live[holder] = {['until'] = till, length = till - now, used = used}
  circuit.kept = now + OPEN_IS_KEPT
  return circuit, 1
end

local function is_current_probe(circuit)
  return circuit and circuit.version == tonumber(ARGV[3]) and circuit.state == 'half-open'
end

local function start(circuit)
  local holder, length = ARGV[4], tonumber(ARGV[5])
  if is_current_probe(circuit) and circuit.places[holder] then
    circuit.places[holder] = {['until'] = now + length, length = length, used = true}
    is_changed = true
  end
  return circuit, 0
end

local function finish(circuit)
  local holder, verdict, places, delay, reason = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
  if not is_current_probe(circuit) then return circuit, 0 end
  if verdict == 'failure' then return stamped(circuit.version, 'open', delay, circuit.reopened + 1, reason), 0 end
  if verdict == 'success' then circuit.successes = circuit.successes + 1 end
  if circuit.successes >= places then return stamped(circuit.version, 'closed', 0, 0, ''), 0 end
  circuit.places[holder] = nil
  is_changed = true
  return circuit, 0
end

if asked == 'read' then return read() end
local stored = redis.call('HGET', key, name)
local circuit, granted = ({open = open, lease = lease, start = start, finish = finish})[asked](stored and load(stored) or nil)
if is_changed then store(name, circuit) end
return {granted, told(circuit)}
