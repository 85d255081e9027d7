-- Makes wrk send bulk requests for all demo pools. The requests are built once, before the start.
--
--   wrk -t1 -c64 -d3s -s bench/bulk.lua http://127.0.0.1:8080 -- DATA/demo-pools.csv [ROWS] [SAMPLE] [STYLE]
--
-- ROWS is the number of rows per batch (40). One answer in SAMPLE (64) is checked. With 0, no
-- answers are checked, and wrk does not store answers. Statuses other than 200 are counted for
-- every answer. STYLE is the JSON style: compact, or that of a language: python, php or go.
-- Consecutive rows are a fixed distance apart in the list of pools, as in bench/src/batch.rs: keep
-- the two in sync. After wrk's own report, one line `RESULT {...}` contains the results as JSON.

local bodies_max, stride = 4096, 7919

local function read_pools(path)
  local pools = {}
  local file = assert(io.open(path))
  file:read("*l") -- the header
  for line in file:lines() do
    local id, key = line:match("^(%d+),([^,]+)")
    if id then pools[#pools + 1] = { id = id, key = key } end
  end
  file:close()
  assert(#pools > 0, path .. " lists no pool")
  return pools
end

-- Rewrites a row's JSON in the style of a language's usual library.
local styles = {
  compact = function(row) return row end,
  python = function(row) return (row:gsub('":"', '": "'):gsub('","', '", "')) end,
  php = function(row) return (row:gsub("/", "\\/")) end,
  go = function(row) return (row:gsub("&", "\\u0026")) end,
}

local function body(pools, rows, first, style)
  local parts = {}
  for row = first, first + rows - 1 do
    local pool = pools[row * stride % #pools + 1]
    parts[#parts + 1] = style(string.format(
      '{"api_suffix":"%s/allocate_number.json?ring_pool_key=%s'
        .. '&m1=autos&m2=ford&gclid=%06d&utm_medium=cpc","request_id":"%06X"}',
      pool.id, pool.key, row % 1000000, row % 0x1000000))
  end
  return '{"requests":[' .. table.concat(parts, ",") .. "]}"
end

local threads = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  local rows, sample = tonumber(args[2] or 40), tonumber(args[3] or 64)
  local style = assert(styles[args[4] or "compact"], "no such style")
  local pools = read_pools(assert(args[1], "the path of demo-pools.csv is missing"))
  local count = math.min(math.max(math.ceil(#pools / rows), 256), bodies_max)
  local headers = { ["Content-Type"] = "application/json" }
  requests, next_request = {}, 0
  for index = 0, count - 1 do
    requests[index + 1] =
      wrk.format("POST", "/api/2013-07-01/bulk.json", headers, body(pools, rows, index * rows, style))
  end
  answers, sampled, sampled_rows, sampled_overflow, sampled_errors, other_status = 0, 0, 0, 0, 0, 0
  if sample > 0 then
    -- wrk checks once, after init, whether this global exists. If not, it stores no answers.
    response = function(status, _, text)
      answers = answers + 1
      if status ~= 200 then other_status = other_status + 1 end
      if answers % sample == 0 then
        sampled = sampled + 1
        sampled_rows = sampled_rows + select(2, text:gsub('"promo_number":"', ""))
        sampled_overflow = sampled_overflow + select(2, text:gsub('"overflow":true', ""))
        sampled_errors = sampled_errors + select(2, text:gsub('"error_class":', ""))
      end
    end
  end
end

function request()
  next_request = next_request % #requests + 1
  return requests[next_request]
end

function done(summary, latency, _)
  local function sum(name)
    local total = 0
    for _, thread in ipairs(threads) do total = total + (thread:get(name) or 0) end
    return total
  end
  local errors = summary.errors
  print(string.format(
    'RESULT {"requests":%d,"seconds":%.6f,"p50_us":%.0f,"p99_us":%.0f,"max_us":%.0f,'
      .. '"bytes":%d,"socket_errors":%d,"timeouts":%d,"bad_status":%d,"answers":%d,"sampled":%d,'
      .. '"sampled_rows":%d,"sampled_overflow":%d,"sampled_errors":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    latency.max, summary.bytes, errors.connect + errors.read + errors.write, errors.timeout,
    errors.status + sum("other_status"), sum("answers"), sum("sampled"), sum("sampled_rows"),
    sum("sampled_overflow"), sum("sampled_errors")))
end
