# frozen_string_literal: true

# Compares the cost of a call with the cost of the same request sent by Net::HTTP,
# net-http-persistent, excon and async-http (those that are installed), with JSON and plain hashes.
# Each uses one thread and one keep-alive connection to a running server; they take turns, so that
# conditions are the same for all. Prints the medians of the rounds: time, the process's CPU time,
# and objects.
#
#   ringwell demo --durability memory --lifetime 10ms
#   ruby -Ilib bench/client.rb http://127.0.0.1:8080 POOL KEY [ROUNDS]
require "net/http"
require "ringwell"

url, POOL, KEY, rounds = ARGV
abort "usage: bench/client.rb URL POOL KEY [ROUNDS]" unless KEY
ROUNDS = (rounds || 2000).to_i
TYPE = {"content-type" => "application/json"}.freeze

def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def median(all) = all.sort[all.size / 2]

# Measures the cost of one library. The block makes one call.
def measure(into)
  objects, used, started = GC.stat(:total_allocated_objects), cpu, now
  yield
  into << [now - started, cpu - used, GC.stat(:total_allocated_objects) - objects]
end

# Returns a call that uses another library. The library sends and returns bytes, and the call itself
# writes and parses the JSON.
def posting
  lambda do |rows|
    suffix = "#{POOL}/allocate_number.json?ring_pool_key=#{KEY}&m1=autos&m2=ford"
    body = JSON.generate("requests" => Array.new(rows) { {"api_suffix" => suffix} })
    JSON.parse(yield(body)).fetch("responses").each { |row| row["promo_number"] }
  end
end

def installed?(name)
  require name
rescue LoadError
  false
else
  true
end

uri = URI("#{url}#{Ringwell::Client::PATH}")
client = Ringwell::Client.new(url, deadline: 5)
calls = {"client" => lambda do |rows|
  batch = client.bulk { |b| rows.times { b.allocate(POOL, key: KEY, params: {m1: "autos", m2: "ford"}) } }
  batch.each(&:number)
end}
http = Net::HTTP.start(uri.host, uri.port)
calls["Net::HTTP"] = posting { |body| http.post(uri.path, body, TYPE).body }
if installed?("net/http/persistent")
  persistent = Net::HTTP::Persistent.new
  calls["net-http-persistent"] = posting do |body|
    request = Net::HTTP::Post.new(uri, TYPE)
    request.body = body
    persistent.request(uri, request).body
  end
end
if installed?("excon")
  excon = Excon.new(url, persistent: true)
  calls["excon"] = posting { |body| excon.post(path: uri.path, body:, headers: TYPE).body }
end

compare = lambda do
  [1, 40].each do |rows|
    costs = calls.transform_values { [] }
    ROUNDS.times { calls.each { |name, call| measure(costs[name]) { call.call(rows) } } }
    middles = costs.transform_values { |all| all.transpose.map { |one| median(one) } }
    middles.each do |name, (time, used, objects)|
      puts format("%2d rows: %-20s %5.0f us, %5.0f us of CPU, %5d objects, client's ratio %.2f", rows, name, time * 1e6,
        used * 1e6, objects, middles["client"][0] / time)
    end
  end
end
if installed?("async/http/internet")
  Async do
    internet = Async::HTTP::Internet.new
    calls["async-http"] = posting { |body| internet.post("#{url}#{Ringwell::Client::PATH}", TYPE.to_a, [body]).read }
    compare.call
    internet.close
  end
else
  compare.call
end
