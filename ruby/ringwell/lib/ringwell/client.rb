# frozen_string_literal: true

module Ringwell
  # Gets numbers from one or more Ringwell servers, over kept-alive connections.
  #
  # A call returns when its answer has arrived. In a plain thread, it blocks that thread; under any
  # `Fiber::Scheduler`, it parks its fiber while others run. Any number of threads and fibers can
  # share one client. It also works in forked children.
  class Client
    include Allocator

    # Servers of this API accept any date.
    PATH = "/api/2013-07-01/bulk.json"

    # @param endpoints [String, Array<String>] "http://HOST:PORT" or "unix:PATH"; calls take turns
    # @param deadline [Numeric] the maximum duration of a call in seconds, including the time to
    #   wait for a connection and to connect
    # @param connections [Integer] the maximum number at a time; further calls wait
    # @param idle [Numeric] seconds after which an unused connection is not used again
    # @param pools [Enumerable<Pool>] keys and overflow numbers of pools that are used often
    # @param overflow [Hash] pool ids and their overflow numbers
    # @param instrumenter [#instrument, Symbol, nil] :active_support for ActiveSupport::Notifications
    #   as soon as it is loaded
    # @param headers [Hash, #call, nil] more headers for each request, e.g. traceparent; a block or
    #   method is called for each request and returns a hash or nil
    # @param allow_blocking [Boolean] whether calls may block EventMachine's reactor
    # @raise [ConfigError] says what is wrong
    def initialize(endpoints, deadline: 0.15, connections: 16, idle: 30, pools: [], overflow: {},
      instrumenter: :active_support, headers: nil, allow_blocking: false)
      endpoints = Array(endpoints).map { |text| Endpoint.new(text: text) }
      endpoints.empty? and raise ConfigError, "a client needs an endpoint"
      check_limits(deadline, connections, idle)
      @deadline = deadline
      @names = endpoints.join(" ").freeze
      @allow_blocking = allow_blocking
      @endpoints = Endpoints.new(endpoints)
      @connections = Connections.new(size: connections, idle: idle)
      @retries = 0
      @headers = Headers.new(headers)
      know(pools, overflow, instrumenter)
    end

    # The number of requests that were sent twice because their kept-alive connection had ended.
    # Each may have used an additional number, which is then locked out.
    #
    # @return [Integer]
    attr_reader :retries

    # Learns the overflow numbers of all ring pools from a server that keeps its pools in a
    # database. The numbers then need not be configured, or received in an answer first.
    #
    # @param management [String] "http://HOST:PORT" of its management address
    # @param token [String] a token that may read the list
    # @param deadline [Numeric] seconds for the whole list
    # @return [Integer] the number of learned overflow numbers
    # @raise [TransportError, ServerError] no list was received
    def learn_overflow(management, token:, deadline: 10)
      require_relative "pool_list"
      list = PoolList.new(Management.new(management, token:), deadline: Deadline.new(deadline))
      known = list.to_h.compact.first(LEARNT_MAX)
      known.each { |pool, overflow| @overflow[pool.to_s] = overflow.freeze }
      known.size
    end

    # Whether a server answers and reports that it is ready for traffic. Requests no number.
    #
    # @return [Boolean]
    def ready?(deadline: @deadline)
      request(Deadline.new(deadline), nil) do |endpoint, _|
        "GET /readyz HTTP/1.1\r\nhost: #{endpoint.host}\r\n#{@headers.lines}\r\n"
      end.status < 500
    rescue TransportError
      false
    end

    # Closes idle connections now, from any thread or fiber. Later calls open their own.
    def close = @connections.close

    # The numbers of `idle` and `taken` connections.
    #
    # @return [Hash{Symbol => Integer}]
    def connections = @connections.to_h

    # Keys and numbers must not appear in a log.
    def inspect = "#<#{self.class.name} #{@names}>"

    private

    def check_limits(deadline, connections, idle)
      {deadline:, idle:}.each do |name, value|
        value.is_a?(Numeric) && value.positive? or
          raise ConfigError, "#{name} must be seconds above 0, got #{value.inspect}"
      end
      connections.is_a?(Integer) && connections.positive? or
        raise ConfigError, "connections must be a whole number above 0, got #{connections.inspect}"
    end

    def exchange(body, seconds, idempotency_key, payload)
      once = "idempotency-key: #{idempotency_key}\r\n" if idempotency_key
      own = "#{@headers.lines}#{once}content-length: #{body.bytesize}\r\n\r\n"
      response = request(Deadline.new(seconds || @deadline), payload) do |endpoint, deadline|
        "POST #{PATH} HTTP/1.1\r\nhost: #{endpoint.host}\r\ncontent-type: application/json\r\n" \
          "ringwell-deadline-ms: #{deadline.milliseconds_for_server}\r\n#{own}".b << body.b
      end
      return response.body if response.status == 200

      raise ServerError.new(status: response.status, body: response.body)
    end

    # Sends the bytes that the block builds to the first endpoint that accepts them.
    def request(deadline, payload)
      refuse_to_block_a_reactor
      @connections.place(deadline) do
        @endpoints.first(deadline) do |endpoint, addresses, part|
          payload[:endpoint] = endpoint.text if payload
          ask_endpoint(endpoint, addresses, yield(endpoint, deadline), deadline, part, payload)
        end
      end
    end

    def ask_endpoint(endpoint, addresses, bytes, deadline, part, payload)
      connection = @connections.idle(endpoint)
      reused = !connection.nil?
      payload[:reused] = reused if payload
      connection ||= connect(endpoint, addresses, deadline, part)
      call(connection, bytes, deadline)
    rescue ConnectionLost
      # The connection ended while it was idle, unless it is new or an answer had begun to arrive.
      raise if !reused || connection.answered?

      deadline.left!(endpoint)
      @retries += 1
      @instrumentation.event("retry.ringwell", endpoint: endpoint.text) { nil }
      call(connect(endpoint, addresses, deadline, deadline), bytes, deadline)
    end

    def connect(endpoint, addresses, deadline, part)
      @connections.make_room
      @instrumentation.event("connect.ringwell", endpoint: endpoint.text) do |payload|
        Connection.new(endpoint, addresses.find(part), part)
      rescue TransportError => error
        payload[:reason] = error.reason if payload
        raise
      end
    rescue DeadlineExceeded => error
      # Only this endpoint's share of the time is used up; another endpoint may be faster.
      raise unless deadline.left.positive?

      raise ConnectError, error.message
    end

    # A connection is never reused after an exception, because the rest of an answer may still
    # arrive.
    def call(connection, bytes, deadline)
      response = connection.call(bytes, deadline)
      @connections.keep(connection) if response.reusable?
      response
    ensure
      connection.close unless response&.reusable?
    end

    # Without a scheduler, a call in the reactor's thread blocks all other work of that thread.
    def refuse_to_block_a_reactor
      return if @allow_blocking || !defined?(EventMachine) || Fiber.current_scheduler
      return unless EventMachine.reactor_running? && EventMachine.reactor_thread?

      raise ConfigError, "this call would block EventMachine's reactor: use EventMachine.defer, " \
                         "or make the client with allow_blocking: true"
    end
  end
end
