# frozen_string_literal: true

module Ringwell
  # The interface of every source of numbers: the {Client}, the {Fake}, and an in-process engine.
  #
  # Creates requests and outcomes, and returns a known overflow number instead of an error. The
  # source itself only implements `exchange`, which turns a batch's bytes into the answer's bytes.
  module Allocator
    # The maximum number of overflow numbers that are learned from answers.
    LEARNT_MAX = 100_000

    # The format of the `Idempotency-Key` header's value.
    IDEMPOTENCY_KEY = /\A[\x20-\x7e]{1,256}\z/

    # The maximum length of the idempotency key if a batch is sent in several requests.
    IDEMPOTENCY_KEY_OF_PARTS = 240

    # The row errors that are not the caller's mistake. The value is the reason that is given if a
    # known overflow number is returned instead.
    FAULTS = {pool_exhausted: :exhausted, service_unavailable: :failed,
               internal_service_error: :failed}.freeze

    # Requests one number.
    #
    # @param pool [String, Integer] the ring pool's id
    # @param key [String, nil] its key; may be omitted if the source has it
    # @param params [Hash, nil] the visitor's context, e.g. `{ m1: "autos" }`; stored with the
    #   allocation
    # @param request_id [String, Numeric, Boolean, nil] echoed in the outcome
    # @param overflow [String, nil] the number to show if none is available; may be omitted if the
    #   source has it
    # @param visitor [String, nil] the same visitor gets the same number within its lifetime
    # @param deadline [Numeric, nil] seconds; overrides the source's deadline
    # @return [Allocation] possibly the overflow number, see {Allocation#overflow?}
    # @raise [RowError] the server has no number for this row
    # @raise [TransportError, ServerError] there was no answer, and no overflow number is known
    # @raise [ArgumentError] the request cannot be sent
    def allocate(pool, key: nil, params: nil, request_id: nil, overflow: nil, visitor: nil,
      deadline: nil)
      row = Batch::Builder.new(@rows).allocate(pool, key:, params:, request_id:, overflow:, visitor:)
      outcome = settle(row, deadline, nil)[0]
      case outcome
      when Allocation then outcome
      # The error is frozen, so Ruby could not store the backtrace in it.
      when RowError then raise outcome.dup
      else raise outcome
      end
    end

    # Requests many numbers at once.
    #
    #     batch = client.bulk { |b| b.allocate("42", key: key, params: { m1: "autos" }) }
    #
    # If there are more rows than one request may contain, sends several requests, one after
    # another, within the deadline. If `rows` is a String, sends these bytes, returns the answer's
    # bytes, and raises every failure.
    #
    # @param rows [Array<Request>, String, nil] instead of a block
    # @param deadline [Numeric, nil] seconds; overrides the source's deadline
    # @param idempotency_key [String, nil] the same key and rows get the same numbers
    # @yieldparam batch [Batch::Builder]
    # @return [Batch, String] outcomes in the order of the rows; errors of rows are not raised
    # @raise [ServerError] the whole request was refused as invalid (status below 500)
    # @raise [ArgumentError] a row cannot be sent
    def bulk(rows = nil, deadline: nil, idempotency_key: nil)
      check_idempotency_key(idempotency_key)
      return bulk_bytes(rows, deadline, idempotency_key) if rows.is_a?(String)

      if rows.nil? && block_given?
        yield asked = Batch::Builder.new(@rows)
      else
        rows.is_a?(Array) && rows.all?(Request) or
          raise ArgumentError, "bulk needs a block, an array of requests, or the body of a batch"
        asked = Batch::Builder.of(rows)
      end
      settle(asked, deadline, idempotency_key)
    end

    # The maximum duration of a call, in seconds, unless the call sets its own deadline.
    #
    # @return [Numeric]
    attr_reader :deadline

    # A pool's overflow number, if it was configured or was in an earlier answer.
    #
    # @param pool [String, Integer]
    # @return [String, nil]
    def overflow(pool) = @overflow[pool.to_s]

    private

    # Must be called by `initialize`.
    #
    # @param pools [Enumerable] objects with `id`, `key` and `overflow`, see {Pool}
    # @param overflow [Hash] pool ids and numbers
    def know(pools, overflow, instrumenter)
      @overflow = pools.to_h { |pool| [pool.id, pool.overflow] }.compact
      overflow.each { |pool, number| @overflow[pool.to_s] = Value.copy(number) }
      @overflow.each do |pool, number|
        Request::NUMBER.match?(number) or
          raise ConfigError,
            "overflow of pool #{pool} must be ten digits, or + and a country code, got #{number.inspect}"
      end
      @rows = Rows.new(pools.to_h { |pool| [pool.id, pool.key] }.freeze)
      @instrumentation = Instrumentation.new(instrumenter)
    end

    def settle(asked, deadline, idempotency_key)
      return Batch.new([]) if asked.size.zero?

      @instrumentation.batch(asked.size, deadline || @deadline) do |payload|
        parts = asked.parts
        terms = [deadline, idempotency_key, payload]
        Batch.new(parts.size == 1 ? outcomes(*parts[0], *terms) : outcomes_of_parts(parts, *terms))
      end
    end

    def outcomes_of_parts(parts, deadline, idempotency_key, payload)
      check_idempotency_key_of_parts(idempotency_key)
      deadline = Deadline.new(deadline || @deadline)
      parts.each_with_index.flat_map do |(asked, body), part|
        key = "#{idempotency_key} part #{part}" if idempotency_key
        outcomes(asked, body, deadline.left!("rows from #{part * Request::ROWS_MAX} on"), key,
          payload)
      rescue DeadlineExceeded => error
        instead(asked, error, payload)
      end
    end

    def outcomes(asked, body, deadline, idempotency_key, payload)
      answer = exchange(body, deadline, idempotency_key, payload)
      Batch.read(answer, asked) { |row, outcome| instead_of(outcome, asked, row) }
    rescue TransportError, ServerError => error
      # Overflow numbers would hide an invalid request forever.
      raise if error.is_a?(ServerError) && error.status < 500

      instead(asked, error, payload)
    end

    # The outcome of a row without its own number. Remembers an overflow number for times when no
    # server answers.
    def instead_of(outcome, asked, row)
      if outcome.is_a?(Allocation)
        known = @overflow.key?(outcome.pool) || @overflow.size < LEARNT_MAX
        @overflow[outcome.pool] = outcome.number if known
        return outcome
      end
      reason = FAULTS[outcome.code]
      (reason && known_overflow(asked, row, reason)) || outcome
    end

    # The outcomes of rows without an answer.
    def instead(asked, error, payload)
      payload[:reason] = error.reason if payload
      Array.new(asked.size) { |row| known_overflow(asked, row, error.reason) || error }
    end

    # The overflow number for a row, if it is known.
    def known_overflow(asked, row, reason)
      number = asked.overflow[row] || @overflow[asked.pools[row]]
      number && Allocation.allocate.fill(asked.pools[row], number, reason, asked.ids[row])
    end

    def bulk_bytes(body, deadline, idempotency_key)
      @instrumentation.bytes(body.bytesize, deadline || @deadline) do |payload|
        exchange(body, deadline, idempotency_key, payload)
      end
    end

    def check_idempotency_key(key)
      key.nil? || IDEMPOTENCY_KEY.match?(key) or
        raise ArgumentError, "idempotency_key must be 1 to 256 printable ASCII characters"
    end

    # Each part has its own key, because two parts may have the same rows.
    def check_idempotency_key_of_parts(key)
      key.nil? || key.size <= IDEMPOTENCY_KEY_OF_PARTS or
        raise ArgumentError, "idempotency_key for a batch in several requests must have at most " \
                             "#{IDEMPOTENCY_KEY_OF_PARTS} characters"
    end
  end
end
