-- The server's clock in whole milliseconds: the only clock that a script knows.
local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- A whole number as commands take it.
local function text_of(number)
  return string.format('%.0f', number)
end
