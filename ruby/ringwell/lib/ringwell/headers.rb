# frozen_string_literal: true

module Ringwell
  # Additional headers for a client's requests: the user agent, and headers that the client's user
  # sets, such as trace headers.
  class Headers
    NAME = /\A[A-Za-z0-9!#$%&'*+.^_`|~-]+\z/
    VALUE = /\A[\x20-\x7e\t]*\z/
    # Names of headers that the client sets.
    RESERVED = %w[host content-length content-type transfer-encoding connection idempotency-key
      ringwell-deadline-ms].freeze
    USER_AGENT = "ringwell-ruby/#{VERSION}".freeze

    # @param more [Hash, #call, nil]
    # @raise [ConfigError] a header cannot be sent
    def initialize(more)
      more.nil? || more.is_a?(Hash) || more.respond_to?(:call) or
        raise ConfigError, "headers must be a hash or callable, got #{more.class}"
      @more = more unless more.is_a?(Hash)
      @fixed = written(more.is_a?(Hash) ? more : {})
    end

    # The header lines for one request.
    #
    # @return [String]
    # @raise [ConfigError] the callable returned a header that cannot be sent
    def lines = @more ? written(@more.call || {}) : @fixed

    private

    def written(headers)
      headers = {"user-agent" => USER_AGENT}.merge(headers.to_h.transform_keys { |name| name.to_s.downcase })
      headers.map { |name, value| line(name, value.to_s) }.join.freeze
    end

    def line(name, value)
      NAME.match?(name) && !RESERVED.include?(name) or
        raise ConfigError, "header #{name.inspect} cannot be set"
      VALUE.match?(value) or raise ConfigError, "the value of header #{name} cannot be sent"
      "#{name}: #{value}\r\n"
    end
  end
end
