# frozen_string_literal: true

require "cgi/escape"
require "json"

# A solution that a team might write without the engine: all pools in a hash, numbers in the order
# in which they become free, and the standard library's C extensions for JSON and unescaping. The
# parameters are stored with each number, because otherwise no call could be attributed. Nothing is
# written to disk.
class PureRuby
  SUFFIX = %r{\A(\d+)/allocate_number\.json\?(.*)\z}m

  # A ring pool. All lockouts have the same length, so the first number in the queue is the next to
  # become free.
  class Pool
    attr_reader :key, :overflow

    def initialize(key, numbers, overflow, lifetime)
      @key = key
      @numbers = numbers.map { |digits| row(digits) }
      @free_at = Array.new(@numbers.size, 0.0)
      @params = Array.new(@numbers.size)
      @overflow = row(overflow).merge("overflow" => true).freeze
      @lifetime = lifetime
      @next = 0
    end

    def allocate(now, params)
      at = @next
      return @overflow if @free_at[at] > now

      @free_at[at] = now + @lifetime
      @params[at] = params
      @next = at + 1 == @numbers.size ? 0 : at + 1
      @numbers[at]
    end

    private

    # The answer for a number, created once.
    def row(digits)
      {"promo_number_formatted" => "#{digits[0, 3]}-#{digits[3, 3]}-#{digits[6, 4]}",
        "promo_number" => digits, "tracking_url" => ""}.freeze
    end
  end

  # @return [nil] the application uses the client's deadline
  attr_reader :deadline

  # @param pools [Hash{String => Pool}] by their ids
  def initialize(pools)
    @pools = pools
    @mutex = Mutex.new
  end

  # @return [String] the answer's bytes
  def bulk(body, **)
    rows = JSON.parse(body).fetch("requests")
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    answers = @mutex.synchronize { rows.map { |row| answer(row, now) } }
    JSON.generate("responses" => answers)
  end

  private

  def answer(row, now)
    SUFFIX.match(row["api_suffix"])
    id = $1
    params = query($2)
    key = params.delete("ring_pool_key")
    pool = @pools[id]
    named = row.key?("request_id") ? {"request_id" => row["request_id"]} : {}
    return named.merge(pool.allocate(now, params)) if pool && pool.key == key

    named.merge("error_class" => "InvalidKey",
      "message" => "API Key '#{key}' is not valid for resource '#{id}'")
  end

  # Parses a query four times as fast as URI.decode_www_form.
  def query(text)
    text.split("&").to_h do |part|
      name, value = part.split("=", 2)
      [CGI.unescape(name, "UTF-8"), CGI.unescape(value.to_s, "UTF-8")]
    end
  end
end
