# frozen_string_literal: true

# A ring pool server in the style of the API that Ringwell's design is based on: one process, an
# EventMachine reactor, and a fiber for each request, which runs plain sequential code. All pools
# are in memory, and nothing is stored on disk.
#
#   ruby server.rb PORT POOLS.csv

require "csv"
require "eventmachine"
require "fiber"
require "json"
require "uri"

# A promo number, formatted once, in the two forms that an answer contains.
Number = Struct.new(:formatted, :digits) do
  def self.of(number)
    digits = number.to_s
    new("#{digits[0, 3]}-#{digits[3, 3]}-#{digits[6, 4]}".freeze, digits.freeze).freeze
  end
end

# A ring pool: the next number, and the end of each lockout.
class Pool
  attr_reader :key, :overflow

  def initialize(line)
    first = line["first_number"].to_i
    @key = line["ring_pool_key"]
    @overflow = line["overflow_number"] && Number.of(line["overflow_number"])
    @lockout = line["lifetime_seconds"].to_f
    # Numbers in the order of allocation. They become free in the same order, because all lockouts
    # have the same length.
    @numbers = Array.new(line["numbers"].to_i) { |i| Number.of(first + i) }
    @free_at = Array.new(@numbers.size, 0.0)
    @next = 0
  end

  # The number that has been free longest; nil if all are locked out.
  def allocate(now)
    return if @free_at[@next] > now

    number = @numbers[@next]
    @free_at[@next] = now + @lockout
    @next += 1
    @next = 0 if @next == @numbers.size
    number
  end
end

# Processes batches, independently of connections.
class Bulk
  KEY = /[?&]ring_pool_key=([^&]*)/.freeze

  def initialize(pools)
    @pools = pools
  end

  def answer(body)
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    rows = JSON.parse(body).fetch("requests")
    JSON.generate("responses" => rows.map { |row| allocate(row, now) })
  end

  private

  def allocate(row, now)
    suffix = row["api_suffix"]
    id = suffix.delete_prefix("ring_pools/")
    id = id[0, id.index("/") || 0]
    key = suffix[KEY, 1] || ""
    key = URI.decode_www_form_component(key) if key.include?("%") || key.include?("+")
    result = row.key?("request_id") ? { "request_id" => row["request_id"] } : {}
    pool = @pools[id]
    return invalid_key(result, key, id) unless pool && pool.key == key

    with_number(result, pool, pool.allocate(now))
  end

  def with_number(result, pool, number)
    return exhausted(result) unless number || pool.overflow

    given = number || pool.overflow
    result["promo_number_formatted"] = given.formatted
    result["promo_number"] = given.digits
    result["tracking_url"] = "" # these pools have none
    result["overflow"] = true unless number
    result
  end

  def invalid_key(result, key, id)
    result["error_class"] = "InvalidKey"
    result["message"] = "API Key '#{key}' is not valid for resource '#{id}'"
    result
  end

  def exhausted(result)
    result["error_class"] = "PoolExhausted"
    result["message"] = "All numbers are in use"
    result
  end
end

# One kept-alive connection: bytes arrive in pieces, and fibers process requests.
class Connection < EventMachine::Connection
  LENGTH = /^content-length:\s*(\d+)/i.freeze
  CLOSE = /^connection:\s*close/i.freeze

  def initialize(bulk)
    super
    @bulk = bulk
    @received = String.new(capacity: 16_384)
  end

  def receive_data(data)
    @received << data
    while (head_ends = @received.index("\r\n\r\n"))
      head = @received[0, head_ends]
      length = head[LENGTH, 1].to_i
      break if @received.bytesize < head_ends + 4 + length

      @received.slice!(0, head_ends + 4)
      body = @received.slice!(0, length)
      Fiber.new { serve(head, body) }.resume
      close_connection_after_writing if head.match?(CLOSE)
    end
  end

  private

  # Serves one request from start to finish. If a request had to wait for another shard or a
  # database, its fiber would yield to the reactor here and resume with the result. Allocating from
  # memory never waits.
  def serve(head, body)
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    return reply("200 OK", "ready") if head.start_with?("GET /readyz ")
    return reply("404 Not Found", "") unless head.match?(%r{\APOST /api/[0-9-]+/bulk\.json })

    answer = @bulk.answer(body.force_encoding(Encoding::UTF_8))
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    reply("200 OK", answer, "processing-time: #{(took * 1000).to_i}\r\n")
  rescue JSON::ParserError, KeyError => e
    reply("400 Bad Request", e.message)
  end

  # Sends head and body in one piece, so that they leave in one packet.
  def reply(status, body, headers = "")
    send_data("HTTP/1.1 #{status}\r\ncontent-type: application/json\r\n#{headers}" \
              "content-length: #{body.bytesize}\r\n\r\n#{body}")
  end
end

port, list = ARGV
pools = CSV.read(list, headers: true).to_h { |line| [line["id"], Pool.new(line)] }
bulk = Bulk.new(pools)
EventMachine.epoll
EventMachine.run { EventMachine.start_server("127.0.0.1", port.to_i, Connection, bulk) }
