# frozen_string_literal: true

module Ringwell
  # All errors that the gem raises, except ArgumentError for wrong arguments.
  class Error < StandardError
    # Whether the same call may succeed a moment later.
    def retryable? = false
  end

  # The configuration cannot be used.
  class ConfigError < Error; end

  # No endpoint sent a readable answer. Numbers may have been handed out, except after a
  # {ConnectError}.
  class TransportError < Error
    # The reason given for a row that gets its pool's overflow number instead.
    def reason = :unreachable

    def retryable? = true
  end

  # No endpoint accepted a connection, so nothing was sent.
  class ConnectError < TransportError; end

  # The connection broke between the request and the end of its answer.
  class ConnectionLost < TransportError; end

  # The deadline passed before an answer arrived.
  class DeadlineExceeded < TransportError
    def reason = :late
  end

  # The answer violates the API. Another attempt is unlikely to help.
  class ProtocolError < TransportError
    def reason = :failed

    def retryable? = false
  end

  # The whole request was refused: its status is not 200.
  class ServerError < Error
    # @return [Integer] the HTTP status
    attr_reader :status
    # @return [String, nil] the API's class, e.g. "InvalidInput"
    attr_reader :error_class
    # @return [Integer, nil] the error handle, which is also in the server's log
    attr_reader :handle
    # @return [String] the answer's body, byte for byte
    attr_reader :body

    # @param body [String] as the server sent it
    def initialize(status:, body:)
      @status = status
      @body = body
      text, @error_class = ServerError.explain(body)
      @handle = text[/refer to error handle (\d+)/, 1]&.to_i
      super("status #{status}: #{text}")
    end

    # The reason given for a row that gets its pool's overflow number instead.
    def reason = :failed

    # A server fault is temporary; an invalid request stays invalid.
    def retryable? = status >= 500

    # The message and class from the API's error object, or the first bytes of any other body.
    def self.explain(body)
      errors = JSON.parse(body).fetch("errors")
      [errors.fetch("invalid_data").to_s, errors["class"]]
    rescue JSON::ParserError, KeyError, TypeError, NoMethodError
      [body.byteslice(0, 200).to_s.scrub, nil]
    end
  end

  # The in-process engine cannot do the requested work; see docs/spec/embed.md. It is never replaced
  # by overflow numbers: every cause except a full disk is a mistake or fault that would otherwise
  # go unnoticed.
  class EngineError < Error; end

  # A call failed because of a bug in the engine. The engine refuses all further calls: close it and
  # open it again.
  class Panicked < EngineError; end

  # This process is a forked child, and the engine belongs to its parent.
  class Forked < EngineError; end

  # The library's version differs from this gem's, or the library is not an engine.
  class AbiMismatch < EngineError; end

  # One row got no number. In a batch, this is a frozen value; {Allocator#allocate} raises a copy.
  class RowError < Error
    # The API's classes and our names for them. Other classes, which later servers may have, become
    # :other.
    CODES = {
      "InvalidKey" => :invalid_key,
      "InvalidInput" => :invalid_input,
      "PoolExhausted" => :pool_exhausted,
      "ServiceUnavailable" => :service_unavailable,
      "InternalServiceError" => :internal_service_error
    }.freeze

    # @return [Symbol] one of {CODES}, or :other
    attr_reader :code
    # @return [String] as the server sent it
    attr_reader :error_class
    # @return [Object] as it was sent, or nil
    attr_reader :request_id
    # @return [Integer, nil] the error handle, which is also in the server's log
    attr_reader :handle

    def initialize(error_class:, message:, request_id: nil)
      super(message.dup.freeze)
      @error_class = error_class.dup.freeze
      @code = CODES.fetch(error_class, :other)
      @request_id = request_id.dup.freeze
      @handle = message[/refer to error handle (\d+)/, 1]&.to_i
      freeze
    end

    def retryable? = %i[pool_exhausted service_unavailable].include?(code)

    def to_h = {code:, error_class:, message:, request_id:, handle:}

    def deconstruct_keys(_keys) = to_h

    def ==(other) = other.class == self.class && other.to_h == to_h
    alias eql? ==

    def hash = to_h.hash

    # The row in the API's format.
    def as_json(*)
      {"request_id" => request_id, "error_class" => error_class, "message" => message}.compact
    end

    def to_json(*args) = as_json.to_json(*args)
  end
end
