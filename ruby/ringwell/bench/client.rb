# frozen_string_literal: true

# What a call costs, beside the same request by Net::HTTP and JSON, in the same run: one thread, one
# kept-alive connection to a running server, taking turns so that both see the same machine.
#
#   ringwell demo --durability memory --lifetime 10ms
#   ruby -Ilib bench/client.rb http://127.0.0.1:8080 POOL KEY [ROUNDS]
require "net/http"
require "ringwell"

url, POOL, KEY, rounds = ARGV
abort "usage: bench/client.rb URL POOL KEY [ROUNDS]" unless KEY
ROUNDS = (rounds || 2000).to_i

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# @return [Float] microseconds, the median
def median(times) = times.sort[times.size / 2] * 1e6

def timed(into)
  started = now
  yield
  into << (now - started)
end

client = Ringwell::Client.new(url, deadline: 5)
uri = URI("#{url}#{Ringwell::Client::PATH}")
http = Net::HTTP.start(uri.host, uri.port)

[1, 40].each do |rows|
  ours = []
  net_http = []
  ROUNDS.times do
    timed(ours) do
      client.bulk { |b| rows.times { b.allocate(POOL, key: KEY, params: {m1: "autos", m2: "ford"}) } }
    end
    timed(net_http) do
      suffix = "#{POOL}/allocate_number.json?ring_pool_key=#{KEY}&m1=autos&m2=ford"
      body = JSON.generate("requests" => Array.new(rows) { {"api_suffix" => suffix} })
      JSON.parse(http.post(uri.path, body, "content-type" => "application/json").body)
    end
  end
  ratio = median(ours) / median(net_http)
  puts format("%2d rows: client %4.0f us, Net::HTTP with hashes %4.0f us, ratio %.2f", rows,
    median(ours), median(net_http), ratio)
end
