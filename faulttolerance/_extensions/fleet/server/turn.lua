-- A turn under a rate limit. The same in Python, with words, is windows.py beside the tests.
-- KEYS[1]: the window. ARGV: its kind, the limit, the length, the burst and the spacing.
-- Gives how long until there may be room; 0: the turn is taken.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, kind = KEYS[1], ARGV[1]
local limit, window, burst, spacing = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local IDLE = 3600000000

local function lasting(length)
  return string.format('%.0f', math.max(1, math.min(1e15, math.ceil(length / 1000))))
end

local function numbers()
  local counted = {}
  for number in string.gmatch(redis.call('GET', key) or '', '%S+') do counted[#counted + 1] = tonumber(number) end
  return counted
end

local function keep(counted, length)
  for place, number in ipairs(counted) do counted[place] = string.format('%.0f', number) end
  redis.call('SET', key, table.concat(counted, ' '), 'PX', lasting(length))
end

local function times(turns)
  local step = math.floor(window / limit)
  local part = turns * (window - step * limit)
  local whole = math.floor(part / limit)
  return turns * step + whole, part - whole * limit
end

local function rounded(moment, part)
  if part > 0 then return moment + 1 end
  return moment
end

local function smooth()
  local counted = numbers()
  local arrival, part, old_limit, old_window, most, last = now, 0, limit, window, burst, now - spacing
  if counted[6] then arrival, part, old_limit, old_window, most, last = unpack(counted) end
  local is_kept = last <= now and old_limit == limit and old_window == window
  if old_limit ~= limit or old_window ~= window then
    local missing = math.min(math.max(0, rounded(arrival, part) - now) * old_limit / old_window, most)
    arrival, part = now + math.ceil(missing * window / limit), 0
  end
  if last > now then
    last = now
    local latest = now + times(burst) + 1
    if arrival >= latest then arrival, part = latest, 0 end
  end
  if rounded(arrival, part) < now then arrival, part = now, 0 end
  local ahead, ahead_part = times(burst - 1)
  local wait = math.max(rounded(arrival - ahead, part - ahead_part), last + spacing) - now
  if wait > 0 then
    if not is_kept then keep({arrival, part, limit, window, math.max(most, burst), last}, math.max(arrival - now, spacing)) end
    return wait
  end
  local step, step_part = times(1)
  arrival, part = arrival + step, part + step_part
  if part >= limit then arrival, part = arrival + 1, part - limit end
  keep({arrival, part, limit, window, burst, now}, math.max(rounded(arrival, part) - now, spacing))
  return 0
end

local function fixed()
  local counted = numbers()
  local begin, count, last = now, 0, now - spacing
  if counted[3] then begin, count, last = unpack(counted) end
  local is_kept = last <= now
  if not is_kept then begin, last = math.min(begin, now), now end
  if now >= begin + window + IDLE then
    begin, count = now, 0
  elseif now >= begin + window then
    begin, count = now - (now - begin) % window, 0
  end
  local due = now
  if count >= limit then due = begin + window end
  local wait = math.max(due, last + spacing) - now
  if wait == 0 then count, last, is_kept = count + 1, now, false end
  if not is_kept then keep({begin, count, last}, math.max(begin + window + IDLE - now, spacing)) end
  return wait
end

local function rolling()
  local last = tonumber(redis.call('LINDEX', key, -1) or now - spacing)
  if last > now then
    local place = -1
    local moment = last
    while moment and moment > now do
      redis.call('LSET', key, place, string.format('%.0f', now))
      place = place - 1
      moment = tonumber(redis.call('LINDEX', key, place) or nil)
    end
    last = now
  end
  local due = now
  local before = redis.call('LINDEX', key, -limit)
  if before then due = before + window end
  local wait = math.max(due, last + spacing) - now
  if wait > 0 then return wait end
  for _ = 1, 2 do
    local oldest = redis.call('LINDEX', key, 0)
    if oldest and oldest + window <= now then redis.call('LPOP', key) end
  end
  redis.call('RPUSH', key, string.format('%.0f', now))
  redis.call('PEXPIRE', key, lasting(math.max(window, spacing)))
  return 0
end

return ({smooth = smooth, fixed = fixed, rolling = rolling})[kind]()
