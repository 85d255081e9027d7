# frozen_string_literal: true

require_relative "base"

module Ringwell
  # A source of numbers for tests. It has the interface of the client and the engine, but no server,
  # and its clock moves only when {#advance} is called.
  #
  #     fake = Ringwell::Fake.new
  #     fake.pool("42", key: "k", numbers: %w[8005550101 8005550102], overflow: "8005550100")
  #     fake.exhaust!("42")
  #
  # The same tests run against the fake and the real server (test/contract.rb), so that the two
  # cannot diverge. The fake reads only the documented form of a batch, not the lenient forms.
  class Fake
    include Allocator

    # A ring pool in the fake. `free_at` maps its numbers to the times when they become free, in the
    # order of allocation.
    Ring = Struct.new(:id, :key, :free_at, :overflow, :lifetime, :visitors, :exhausted)
    private_constant :Ring

    SUFFIX = %r{\A(?<pool>[^/]+)/allocate_number\.(?:json|xml|csv)\?(?<query>.*)\z}m
    BAD_SUFFIX = "api_suffix must be " \
                 "<pool id>/allocate_number.json?ring_pool_key=<key>&<parameters>"
    # The key for rows that contain none, in pools that accept every key.
    ANY_KEY = "any"
    private_constant :SUFFIX, :BAD_SUFFIX, :ANY_KEY

    # @return [Float] the virtual clock's time in seconds
    attr_reader :now
    # @return [Array<Hash>] each number that was handed out: :pool, :number, :overflow, :params, :at
    attr_reader :history

    # Takes the options of {Client} for pools and deadlines, but no endpoints.
    #
    # @param any_pool [Boolean] whether undefined pools also have numbers, with any key: the 99
    #   numbers reserved for fiction, 555-0101 to 555-0199, the last as the overflow number
    def initialize(deadline: 0.15, pools: [], overflow: {}, instrumenter: nil, any_pool: false)
      @deadline = deadline
      @now = 0.0
      @mutex = Mutex.new
      @rings = {}
      @history = []
      @answers = {}
      recover!
      know(pools, overflow, instrumenter)
      @any_pool = any_pool
      @rows = Rows.new(Hash.new(ANY_KEY).merge(@rows.keys.compact)) if any_pool
    end

    # Creates a ring pool.
    #
    # @param numbers [Enumerable<String>] in the order of allocation
    # @param overflow [String, nil] allocated when no number is free
    # @param lifetime [Numeric] seconds on the virtual clock
    def pool(id, key:, numbers:, overflow: nil, lifetime: 1800)
      free_at = numbers.to_h { |number| [Allocation.new(pool: id.to_s, number:).number, 0.0] }
      @rings[id.to_s] = Ring.new(id.to_s, key, free_at, overflow, lifetime, {}, false)
      self
    end

    # Advances the clock.
    def advance(seconds) = @now += seconds

    # Makes every further answer take this many seconds on the virtual clock.
    def late!(seconds) = @late = seconds

    # Makes every further request fail to connect.
    def refuse! = @refuse = true

    # Makes every further request fail as a whole, with this status.
    def fail!(status = 500) = @status = status

    # Exhausts a pool until {#recover!} is called.
    def exhaust!(pool) = ring(pool.to_s) { raise KeyError, "no pool #{pool}" }.exhausted = true

    # Ends all simulated faults.
    def recover!
      @late = 0
      @refuse = false
      @status = nil
      @rings.each_value { |ring| ring.exhausted = false }
    end

    # Starts over: all numbers are free, the history is empty, there are no faults, and the clock is
    # at 0.
    def reset!
      @mutex.synchronize do
        recover!
        @now = 0.0
        @history.clear
        @answers.clear
        @rings.each_value do |ring|
          ring.visitors.clear
          ring.free_at.transform_values! { 0.0 }
        end
      end
      self
    end

    # The last visitor who was shown a number, as in an attribution.
    #
    # @return [Hash, nil] an entry of {#history}
    def holder(number)
      @history.reverse_each.find { |entry| entry[:number] == number && !entry[:overflow] }
    end

    # Whether the fake answers requests.
    def ready? = !@refuse && !@status

    # Does nothing. Exists so that a {Fake} can replace a client.
    def close; end

    private

    def exchange(body, seconds, idempotency_key, _payload)
      @mutex.synchronize do
        raise ConnectError, "fake: refuses" if @refuse

        pass_time(seconds || @deadline)
        refused(@status, "InternalServiceError", "refer to error handle 1") if @status
        next answer(body) unless idempotency_key

        @answers[[idempotency_key, body]] ||= answer(body)
      end
    end

    # Returns the pool. Creates it if it does not exist.
    def ring(pool)
      @rings[pool] || begin
        return yield unless @any_pool

        prefix = format("%03d55501", 200 + @rings.size)
        pool(pool, key: nil, numbers: (1..98).map { |last| format("%s%02d", prefix, last) },
          overflow: @overflow.fetch(pool, "#{prefix}99"))
        @rings[pool]
      end
    end

    def pass_time(deadline)
      advance([@late, deadline].min)
      raise DeadlineExceeded, "fake: not within #{(deadline * 1000).round} ms" if @late > deadline
    end

    def answer(body)
      rows = JSON.parse(body).fetch("requests")
      rows.empty? and refused(403, "InvalidInput", "requests must have at least one entry")
      JSON.generate("responses" => rows.map { |row| row(row) })
    rescue JSON::ParserError
      refused(400, "InvalidInput", "the body is not JSON")
    rescue KeyError, NoMethodError, TypeError
      refused(403, "InvalidInput", 'the body must be {"requests":[{"api_suffix":"..."}]}')
    end

    def refused(status, error_class, message)
      body = {"errors" => {"invalid_data" => message, "class" => error_class}}
      raise ServerError.new(status: status, body: JSON.generate(body))
    end

    def row(row)
      parts = SUFFIX.match(row["api_suffix"])
      outcome = parts ? allocation(parts[:pool], parts[:query]) : error("InvalidInput", BAD_SUFFIX)
      outcome["request_id"] = row["request_id"] if row.key?("request_id")
      # The API's order: the id comes first, an overflow mark last.
      %w[request_id error_class message promo_number_formatted promo_number tracking_url overflow]
        .filter_map { |name| [name, outcome[name]] if outcome.key?(name) }.to_h
    end

    def error(error_class, message) = {"error_class" => error_class, "message" => message}

    def allocation(pool, query)
      params = query.split("&").to_h do |part|
        name, value = part.split("=", 2)
        [CGI.unescape(name, "UTF-8"), CGI.unescape(value.to_s, "UTF-8")]
      end
      key = params.delete("ring_pool_key")
      visitor = params.delete("ringwell_visitor")
      ring = ring(pool) { nil }
      return wrong_key(key, pool) unless ring && [nil, key].include?(ring.key)

      number = choose(ring, visitor)
      return exhausted(ring) unless number || ring.overflow

      hand_out(ring, number, params).as_json
    end

    def wrong_key(key, pool)
      error("InvalidKey", "API Key '#{key}' is not valid for resource '#{pool}'")
    end

    def exhausted(ring)
      wait = [(ring.free_at.values.min - @now).ceil, 1].max
      error("PoolExhausted", "All numbers of ring pool #{ring.id} are in use and it has no " \
                             "overflow number; ask again in #{wait} seconds")
    end

    # Returns the visitor's own number if it is still locked for that visitor, else the number that
    # has been free longest.
    def choose(ring, visitor)
      return if ring.exhausted

      number = ring.visitors[visitor] if visitor
      number = nil if number && ring.free_at[number] <= @now
      number ||= ring.free_at.select { |_, at| at <= @now }.min_by(&:last)&.first or return
      ring.visitors.delete_if { |_, held| held == number }
      ring.visitors[visitor] = number if visitor
      ring.free_at[number] = @now + ring.lifetime
      number
    end

    def hand_out(ring, number, params)
      shown = number || ring.overflow
      @history << {pool: ring.id, number: shown, overflow: number.nil?, params:, at: @now}
      Allocation.new(pool: ring.id, number: shown, reason: number ? :allocated : :overflow)
    end
  end
end
