# frozen_string_literal: true

# Measures a bulk request of 40 rows. It is answered by a handler in pure Ruby, by the server, and
# by the engine in Puma, in Thin, in EventMachine with a fiber per request and, if it is installed,
# in Falcon. Each has its own process. They take turns, so that conditions are the same for all. The
# result is the median of the rounds. `wrk` sends as fast as answers arrive, over 8 connections.
#
#   cargo build --release -p ringwell-cli -p ringwell-embed
#   ruby -Ilib bench/engine.rb [SECONDS [ROUNDS]]
#
# Then measures a call without a server, through Fiddle and through the C shim (`rake shim`).
#
# AT_ONCE=yes measures all at the same time, which only shows that they work.
require "etc"
require "net/http"
require "open3"
require "rbconfig"
require "tmpdir"
require "ringwell/engine"
require "ringwell/rack"
require_relative "../test/support/quiet"
require_relative "../test/support/server"
require_relative "support/calls"
require_relative "support/pure_ruby"

SECONDS, ROUNDS = [ARGV[0] || 3, ARGV[1] || 3].map(&:to_f)
ROWS = 40
# Enough numbers that no pool runs out: a number is free again after 10 ms.
NUMBERS = 1000
LIFETIME = 0.01
CONNECTIONS = 8
THREADS = 5
NAMES = {pure_puma: "pure Ruby in Puma", pure_em: "pure Ruby in EventMachine",
          puma: "engine in Puma", thin: "engine in Thin", em: "engine in EventMachine",
          falcon: "engine in Falcon", server: "server, one shard"}
  .select { |name, _| name != :falcon || system("which falcon", out: File::NULL) }.freeze

POOLS = (1..ROWS).to_h do |id|
  first = 8_880_000_000 + (id * 10_000)
  [id, {key: format("S3CR3TKEY%07d", id), first: first.to_s, last: (first + NUMBERS - 1).to_s,
         overflow: (first + 9_999).to_s}]
end.freeze

# Answers batches in this process.
module Backend
  def self.pure
    PureRuby.new(POOLS.to_h do |id, pool|
      numbers = (pool[:first]..pool[:last]).to_a
      [id.to_s, PureRuby::Pool.new(pool[:key], numbers, pool[:overflow], LIFETIME)]
    end)
  end

  def self.engine = Ringwell::Engine.open(durability: :memory, ring_pools:)

  def self.ring_pools
    POOLS.map do |id, pool|
      {id:, key: pool[:key], numbers: ["#{pool[:first]}-#{pool[:last]}"],
        overflow: pool[:overflow], lifetime: LIFETIME}
    end
  end
end

# Serves as one of {NAMES} until the process is killed.
def serve(name, port)
  return falcon(port) if name == "falcon"

  backend = name.start_with?("pure") ? Backend.pure : Backend.engine
  case name
  when "pure_em", "em"
    require_relative "support/reactor"
    Reactor.serve(backend, port)
  when "thin" then thin(Ringwell::Rack::App.new(backend), port)
  else puma(Ringwell::Rack::App.new(backend), port)
  end
end

# Runs Falcon: one process, with a fiber per request.
def falcon(port)
  exec({"RINGWELL_POOLS" => JSON.generate(Backend.ring_pools)}, "falcon", "serve", "--count", "1",
    "--bind", "http://127.0.0.1:#{port}", "--config", File.expand_path("support/engine.ru", __dir__),
    %i[out err] => File::NULL)
end

def thin(app, port)
  require "thin"
  Thin::Logging.silent = true
  Thin::Server.new("127.0.0.1", port, app, signals: false).start
end

def puma(app, port)
  require "puma"
  puma = Puma::Server.new(app, Quiet.puma, min_threads: THREADS, max_threads: THREADS,
                                             **Quiet.puma_options)
  puma.add_tcp_listener("127.0.0.1", port)
  puma.run.join
end

# @return [Array(Integer, #call, Integer)] the port, a block that ends the process, and its id
def start(name)
  return start_server if name == :server

  port = Server.free_port
  pid = Process.spawn(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), __FILE__, "serve",
    name.to_s, port.to_s, pgroup: true)
  wait_for(port, pid)
  # Also kills the child processes.
  [port, -> { Process.kill(:KILL, -pid) && Process.wait(pid) }, pid]
end

def start_server
  pools = POOLS.map do |id, pool|
    Server.pool(id, key: pool[:key], numbers: ["#{pool[:first]}-#{pool[:last]}"],
      overflow: pool[:overflow], lifetime: LIFETIME)
  end
  server = Server.new(pools.join)
  [server.port, server.method(:stop), server.pid]
end

def wait_for(port, pid)
  TCPSocket.new("127.0.0.1", port).close
rescue Errno::ECONNREFUSED
  abort "it did not start" if Process.wait(pid, Process::WNOHANG)
  sleep 0.01
  retry
end

BODY = JSON.generate("requests" => POOLS.map do |id, pool|
  suffix = "#{id}/allocate_number.json?ring_pool_key=#{pool[:key]}&m1=autos&m2=ford+f150"
  {"api_suffix" => suffix, "request_id" => format("193C5F%02d", id)}
end)

# The script that makes wrk send the batch.
SCRIPT = <<~LUA
  wrk.method = "POST"
  wrk.headers["content-type"] = "application/json"
  wrk.body = [[#{BODY}]]
LUA

# Checks that the answer has one number per row, and no overflow number.
def check(port)
  answer = Net::HTTP.post(URI("http://127.0.0.1:#{port}#{Ringwell::Client::PATH}"), BODY).body
  rows = JSON.parse(answer).fetch("responses")
  rows.count { |row| row["promo_number"] && !row["overflow"] } == ROWS or
    abort "not the expected answer: #{answer[0, 300]}"
end

# The processor seconds that a process and its children in the same group have used.
def processor_seconds(pid)
  Dir["/proc/[0-9]*/stat"].sum do |file|
    fields = File.read(file).split(") ", 2)[1].split
    mine = file == "/proc/#{pid}/stat" || fields[2].to_i == pid
    mine ? fields[11, 2].sum(&:to_f) / Etc.sysconf(Etc::SC_CLK_TCK) : 0
  rescue SystemCallError
    # The process has already ended.
    0
  end
end

# @return [Array(Float, Float)] requests per second, and processor seconds per request
def measure(port, pid, lua, seconds = SECONDS)
  used = processor_seconds(pid)
  # wrk measures only whole seconds; when interrupted, it reports the time so far.
  command = ["timeout", "-s", "INT", seconds.to_s, "wrk", "-t1", "-c#{CONNECTIONS}", "-d1h", "-s",
    lua, "http://127.0.0.1:#{port}#{Ringwell::Client::PATH}"]
  text, = Open3.capture2e(*command)
  # On a busy machine, wrk may be interrupted before it has begun.
  return measure(port, pid, lua, seconds * 2) if text.empty? && seconds < 60

  failed = text[/Non-2xx or 3xx responses: \d+|Socket errors: .*/]
  raise "not the expected answers: #{failed}" if failed

  rate = text[%r{Requests/sec:\s*([\d.]+)}, 1]&.to_f or raise "wrk says:\n#{text}"
  [rate, (processor_seconds(pid) - used) / [text[/(\d+) requests in/, 1].to_i, 1].max]
end

def rates(running, lua)
  if ENV["AT_ONCE"]
    return running.to_h { |name, (port, _, pid)| [name, Thread.new { [measure(port, pid, lua)] }] }
        .transform_values(&:value)
  end
  rates = Hash.new { |all, name| all[name] = [] }
  ROUNDS.to_i.times { running.each { |name, (port, _, pid)| rates[name] << measure(port, pid, lua) } }
  rates
end

def compare(lua)
  File.write(lua, SCRIPT)
  running = {}
  NAMES.each_key { |name| running[name] = start(name) }
  running.each_value { |port, _| check(port) }
  middles = rates(running, lua).transform_values { |all| all.sort[all.size / 2] }
  running.each_value { |port, _| check(port) }
  middles.each do |name, (rate, used)|
    puts format("%-26s %7.0f requests/s, %7.0f rows/s, %5.0f us of CPU a request, %5.2f times pure Ruby in Puma",
      NAMES[name], rate, rate * ROWS, used * 1e6, rate / middles[:pure_puma][0])
  end
ensure
  running.each_value { |_, stop| stop.call }
end

if ARGV[0] == "serve"
  serve(ARGV[1], ARGV[2].to_i)
else
  Dir.mktmpdir { |files| compare("#{files}/bulk.lua") }
  puts Calls.new(SECONDS / 10, ROUNDS.to_i).lines
end
