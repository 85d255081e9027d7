# frozen_string_literal: true

module Ringwell
  # A ring pool's settings, which are given to a client in advance.
  class Pool < Value
    value_fields :id, :key, :overflow, secret: [:key]

    # @param id [String, Integer] the ring pool's id
    # @param key [String, nil] the ring pool's key
    # @param overflow [String, nil] its overflow number: ten digits, or E.164
    # @raise [ConfigError] names the invalid field
    def initialize(id:, key: nil, overflow: nil)
      @id = Value.copy(id.to_s)
      @key = Value.copy(key)
      @overflow = Value.copy(overflow&.to_s)
      overflow.nil? || Request::NUMBER.match?(@overflow) or
        raise ConfigError, "overflow of pool #{id} must be ten digits, or + and a country code, got #{overflow.inspect}"
      freeze
    end
  end
end
