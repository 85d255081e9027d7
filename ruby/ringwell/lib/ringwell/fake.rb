# frozen_string_literal: true

require_relative "base"

module Ringwell
  # A source of numbers for tests: the client's and the engine's interface without a server, with
  # a clock that moves only by {#advance}.
  #
  #     fake = Ringwell::Fake.new
  #     fake.pool("42", key: "k", numbers: %w[8005550101 8005550102], overflow: "8005550100")
  #     fake.exhaust!("42")
  #
  # The same tests run against it and against the real server (test/contract.rb), so that it cannot
  # drift away. It reads the documented form of a batch only, none of the lenient ones.
  class Fake
    include Allocator

    # A ring pool of the fake: which number may go out from when on, in the order of choice.
    Ring = Struct.new(:id, :key, :free_at, :overflow, :lifetime, :visitors, :exhausted)
    private_constant :Ring

    SUFFIX = %r{\A(?<pool>[^/]+)/allocate_number\.(?:json|xml|csv)\?(?<query>.*)\z}m
    BAD_SUFFIX = "api_suffix must be " \
                 "<pool id>/allocate_number.json?ring_pool_key=<key>&<parameters>"
    # What rows without a key have, where every key is right.
    ANY_KEY = "any"
    private_constant :SUFFIX, :BAD_SUFFIX, :ANY_KEY

    # @return [Float] seconds of the virtual clock
    attr_reader :now
    # @return [Array<Hash>] each number that was handed out: :pool, :number, :overflow, :params, :at
    attr_reader :history

    # Takes what {Client} takes about pools and deadlines, and no endpoints.
    #
    # @param any_pool [Boolean] whether a pool that was not made has numbers too, by any key: 99 in
    #   the range for fiction, 555-0101 to 555-0199, the last for overflow
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

    # Makes a ring pool.
    #
    # @param numbers [Enumerable<String>] in the order in which they go out
    # @param overflow [String, nil] goes out when no number is free
    # @param lifetime [Numeric] seconds of the virtual clock
    def pool(id, key:, numbers:, overflow: nil, lifetime: 1800)
      free_at = numbers.to_h { |number| [Allocation.new(pool: id.to_s, number:).number, 0.0] }
      @rings[id.to_s] = Ring.new(id.to_s, key, free_at, overflow, lifetime, {}, false)
      self
    end

    # Moves the clock.
    def advance(seconds) = @now += seconds

    # From now on every answer takes so many seconds of the virtual clock.
    def late!(seconds) = @late = seconds

    # From now on no request is taken.
    def refuse! = @refuse = true

    # From now on every request fails as a whole, with this status.
    def fail!(status = 500) = @status = status

    # A pool has no number left, until {#recover!}.
    def exhaust!(pool) = ring(pool.to_s) { raise KeyError, "no pool #{pool}" }.exhausted = true

    # Ends all trouble.
    def recover!
      @late = 0
      @refuse = false
      @status = nil
      @rings.each_value { |ring| ring.exhausted = false }
    end

    # Begins anew: all numbers are free, nothing was handed out, no trouble, the clock at 0.
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

    # Who was shown a number last, as an attribution would say.
    #
    # @return [Hash, nil] an entry of {#history}
    def holder(number)
      @history.reverse_each.find { |entry| entry[:number] == number && !entry[:overflow] }
    end

    # Whether it would answer.
    def ready? = !@refuse && !@status

    # Nothing to close; so that it can stand in for a client.
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

    # A pool that was made, or is made now.
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
      # In the order of the API: the id first, an overflow mark last.
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

    # The visitor's own number if that is still locked for him, else the one free longest.
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
