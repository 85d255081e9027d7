# frozen_string_literal: true

module Ringwell
  # What every source of numbers answers: the {Client}, the {Fake}, and an engine in the process.
  #
  # Owns requests, outcomes, and the rule that a known overflow number is better than an error.
  # The source itself only turns the bytes of a batch into the bytes of its answer, in `exchange`.
  module Allocator
    # So many overflow numbers are learnt from answers at most; later pools do without.
    LEARNT_MAX = 100_000

    # What may stand in the header of that name.
    IDEMPOTENCY_KEY = /\A[\x20-\x7e]{1,256}\z/

    # Asks for one number.
    #
    # @param pool [String, Integer] the ring pool's id
    # @param key [String, nil] its key, if the source was not made with it
    # @param params [Hash] parameters whose names are taken by this method's keywords
    # @param overflow [String, nil] what to show if there is no answer in time, if the source was
    #   not made with it
    # @param visitor [String, nil] the same visitor gets the same number within its lifetime
    # @param deadline [Numeric, nil] seconds, in place of the source's own
    # @param parameters [Hash] the visitor's context, e.g. `m1: "autos"`
    # @return [Allocation] possibly the overflow number, see {Allocation#overflow?}
    # @raise [RowError] the server has no number for this row
    # @raise [TransportError, ServerError] there was no answer, and no overflow number is known
    # @raise [ArgumentError] the request cannot be sent
    def allocate(pool, deadline: nil, **fields)
      outcome = settle([request(pool, **fields)], deadline, nil).first
      case outcome
      when Allocation then outcome
      # Frozen, so that it could not take the backtrace.
      when RowError then raise outcome.dup
      else raise outcome
      end
    end

    # Asks for many numbers in one request.
    #
    #     batch = client.bulk { |b| b.allocate("42", key: key, m1: "autos") }
    #
    # Given a String instead, sends these bytes and returns the bytes of the answer; then every
    # failure is raised.
    #
    # @param rows [Array<Request>, String, nil] instead of a block
    # @param deadline [Numeric, nil] seconds, in place of the source's own
    # @param idempotency_key [String, nil] the same key and rows get the same numbers
    # @return [Batch, String] outcomes in the order of the rows; a batch does not raise for rows
    # @raise [ServerError] the whole request was refused as wrong (status below 500)
    # @raise [ArgumentError] a row cannot be sent
    def bulk(rows = nil, deadline: nil, idempotency_key: nil)
      check_idempotency_key(idempotency_key)
      return exchange(rows, deadline, idempotency_key, nil) if rows.is_a?(String)

      if rows.nil?
        builder = Batch::Builder.new { |pool, **fields| request(pool, **fields) }
        yield builder
        rows = builder.requests
      end
      settle(rows, deadline, idempotency_key)
    end

    # Seconds in which a call has an outcome, unless it names its own.
    #
    # @return [Numeric]
    attr_reader :deadline

    # The overflow number of a pool, if it was given or has been seen.
    #
    # @return [String, nil]
    def overflow(pool) = @overflow[pool.to_s]

    private

    # To be called by `initialize`.
    #
    # @param pools [Enumerable] things with `id`, `key` and `overflow`, see {Pool}
    # @param overflow [Hash] pool ids and numbers
    def know(pools, overflow, instrumenter)
      @keys = pools.to_h { |pool| [pool.id, pool.key] }.freeze
      @overflow = pools.to_h { |pool| [pool.id, pool.overflow] }.compact
      overflow.each { |pool, number| @overflow[pool.to_s] = Value.copy(number) }
      @overflow.each do |pool, number|
        Request::NUMBER.match?(number) or
          raise ConfigError, "overflow of pool #{pool} must be ten digits, got #{number.inspect}"
      end
      @instrumenter = instrumenter
      # Instrumenters that know who listens spare us the work of telling nobody.
      @notifier = instrumenter.notifier if instrumenter.respond_to?(:notifier)
    end

    # One row, with what the source knows about its pool.
    def request(pool, key: nil, params: {}, request_id: nil, overflow: nil, visitor: nil,
                **parameters)
      id = pool.to_s
      parameters = params.empty? ? parameters : params.to_h.merge(parameters)
      parameters = parameters.merge(ringwell_visitor: visitor) if visitor
      Request.new(pool: id, key: key || @keys[id], params: parameters, request_id: request_id,
                  overflow: overflow || @overflow[id])
    end

    def settle(requests, deadline, idempotency_key)
      return Batch.new([]) if requests.empty?
      return ask(requests, deadline, idempotency_key, nil) unless listening?("bulk.ringwell")

      payload = { rows: requests.size, deadline: deadline || @deadline }
      @instrumenter.instrument("bulk.ringwell", payload) do
        batch = ask(requests, deadline, idempotency_key, payload)
        payload[:overflowed] = batch.overflowed.size
        payload[:failed] = batch.errors.size
        batch
      end
    end

    def ask(requests, deadline, idempotency_key, payload)
      answer = exchange(Request.body(requests), deadline, idempotency_key, payload)
      outcomes = Batch.read(answer, requests)
      learn(outcomes)
      Batch.new(outcomes)
    rescue TransportError, ServerError => error
      # A request that is wrong in itself would never be noticed behind overflow numbers.
      raise if error.is_a?(ServerError) && error.status < 500

      payload[:reason] = error.reason if payload
      Batch.new(requests.map { |row| instead(row, error) })
    end

    # What a row gets that has no answer.
    def instead(request, error)
      number = request.overflow || @overflow[request.pool]
      return error unless number

      Allocation.new(pool: request.pool, number: number, reason: error.reason,
                     request_id: request.request_id)
    end

    # An overflow number that was handed out is worth keeping for the day when nobody answers.
    def learn(outcomes)
      outcomes.each do |outcome|
        next unless outcome.is_a?(Allocation) && outcome.overflow?

        known = @overflow.key?(outcome.pool) || @overflow.size < LEARNT_MAX
        @overflow[outcome.pool] = outcome.number if known
      end
    end

    def check_idempotency_key(key)
      key.nil? || IDEMPOTENCY_KEY.match?(key) or
        raise ArgumentError, "idempotency_key must be 1 to 256 printable ASCII characters"
    end

    def listening?(event)
      @notifier ? @notifier.listening?(event) : !@instrumenter.nil?
    end

    def instrument(event, **payload)
      @instrumenter.instrument(event, payload) { nil } if listening?(event)
    end
  end
end
