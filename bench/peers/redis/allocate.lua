-- Allocates one number for each of KEYS. Each key is the list of a pool's numbers, both free and
-- locked out. ARGV contains the pools' lockouts in milliseconds. Returns a number or an empty
-- string for each key.
--
-- An entry is "NUMBER FREE_AT". When a number is handed out, it moves to the end of its list. The
-- list is therefore in the order in which numbers become free, and its head has been free longest.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local numbers = {}
for i, key in ipairs(KEYS) do
  local head = redis.call('LPOP', key)
  local number = ''
  if head then
    if tonumber(string.sub(head, 12)) <= now then
      number = string.sub(head, 1, 10)
      redis.call('RPUSH', key, number .. ' ' .. (now + ARGV[i]))
    else
      redis.call('LPUSH', key, head)
    end
  end
  numbers[i] = number
end
return numbers
