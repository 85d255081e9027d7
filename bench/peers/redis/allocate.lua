-- Allocates one number for each of KEYS, the lists of free and locked-out numbers of pools; ARGV has
-- their lockouts in milliseconds. Answers a number or an empty string for each.
--
-- An entry is "NUMBER FREE_AT". A number goes to the end of its list when it is handed out, so the
-- list is in the order in which numbers come free, and the head has been free longest.
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
