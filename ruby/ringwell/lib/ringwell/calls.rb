# frozen_string_literal: true

require_relative "base"
require_relative "management"

module Ringwell
  # Sends the outcomes of recorded calls to the server.
  class Calls
    # The format of a call's id, which is part of a path.
    ID = /\A[A-Za-z0-9._~-]{1,128}\z/

    # @param management [String] "http://HOST:PORT" of the server's management address
    # @param token [String]
    # @param deadline [Numeric] seconds for a request
    # @raise [ConfigError] says what is wrong
    def initialize(management, token:, deadline: 10)
      @management = Management.new(management, token: token)
      @deadline = deadline
    end

    # Records an outcome of a call, such as a sale. If it is sent twice with the same `external_id`
    # or the same `idempotency_key`, it is recorded once.
    #
    # @param call [String, Integer] the call's id
    # @param type [String] e.g. "sale"
    # @param value [String, Integer, BigDecimal, nil] an amount, e.g. "129.50"; not a Float, which
    #   cannot hold exact cents
    # @param currency [String, nil] three letters, with `value`
    # @param at [Time, String, nil] the time of the outcome
    # @param external_id [String, nil] your own id for the outcome, e.g. an order number
    # @param idempotency_key [String, nil] by default, built from call, type and external_id
    # @return [Hash{String => Object}] the server's answer
    # @raise [TransportError, ServerError] the outcome was not recorded, or may not have been
    # @raise [ArgumentError] the outcome cannot be sent
    def outcome(call, type:, value: nil, currency: nil, at: nil, external_id: nil,
      idempotency_key: nil)
      ID.match?(call.to_s) or raise ArgumentError, "call must be an id, got #{call.inspect}"
      value.is_a?(Float) and raise ArgumentError, "value must be exact: text, Integer or BigDecimal"
      value.nil? || currency or raise ArgumentError, "value needs a currency"
      external_id || idempotency_key or
        raise ArgumentError, "an outcome needs an external_id or an idempotency_key"
      body = {type:, value: amount(value), currency:, at: time(at), external_id:}.compact
      key = idempotency_key || "#{call} #{type} #{external_id}"
      Allocator::IDEMPOTENCY_KEY.match?(key) or
        raise ArgumentError, "idempotency_key must be 1 to 256 printable ASCII characters"
      answer = @management.post("/v1/calls/#{call}/outcomes", JSON.generate(body),
        Deadline.new(@deadline), idempotency_key: key)
      answer.empty? ? {} : JSON.parse(answer)
    rescue JSON::ParserError => error
      raise ProtocolError, "the answer to an outcome is not JSON: #{error.message[0, 100].scrub}"
    end

    private

    def amount(value)
      defined?(BigDecimal) && value.is_a?(BigDecimal) ? value.to_s("F") : value&.to_s
    end

    def time(at) = at.respond_to?(:getutc) ? at.getutc.strftime("%Y-%m-%dT%H:%M:%S.%LZ") : at
  end
end
