# frozen_string_literal: true

module Ringwell
  # One row of a batch: which pool, its key, and the visitor's marketing context.
  class Request < Value
    value_fields :pool, :key, :params, :request_id, :overflow, secret: [:key]

    # The server says which ids there are; here they must only fit into a path.
    POOL = %r{\A[^/?#\s]+\z}
    # A number that can be handed out: ten digits without country code, as the API writes it.
    NUMBER = /\A[2-9]\d{9}\z/

    # @param pool [String, Integer] the ring pool's id
    # @param key [String] the ring pool's key
    # @param params [Hash] names and scalar values, stored with the allocation
    # @param request_id [String, Numeric, Boolean, nil] echoed in the answer
    # @param overflow [String, nil] what to show if no number can be had in time
    # @raise [ArgumentError] names the field that cannot be sent
    def initialize(pool:, key:, params: {}, request_id: nil, overflow: nil)
      @pool = Value.copy(pool.to_s)
      POOL.match?(@pool) or raise ArgumentError, "pool must be an id, got #{pool.inspect}"
      @key = Value.copy(key)
      key.is_a?(String) && !key.empty? or raise ArgumentError, "key of pool #{pool} is missing"
      @params = Request.checked_params(params)
      @request_id = Request.checked_id(request_id)
      @overflow = Value.copy(overflow)
      overflow.nil? || NUMBER.match?(overflow) or
        raise ArgumentError, "overflow must be ten digits, got #{overflow.inspect}"
      freeze
    end

    # The row as the API reads it.
    def as_json(*)
      suffix = "#{pool}/allocate_number.json?ring_pool_key=#{CGI.escape(key)}"
      params.each do |name, value|
        suffix << "&" << Request.escape(name) << "=" << Request.escape(value)
      end
      row = { "api_suffix" => suffix }
      row["request_id"] = request_id unless request_id.nil?
      row
    end

    def to_json(*args) = as_json.to_json(*args)

    # The body of a batch.
    #
    # @param requests [Array<Request>]
    def self.body(requests) = JSON.generate("requests" => requests.map(&:as_json))

    # The API echoes any scalar of JSON. It takes null too, which nil does not send.
    def self.checked_id(id)
      case id
      when nil, String, Integer, Float, true, false then Value.copy(id)
      else raise ArgumentError, "request_id must be a JSON scalar, got #{id.inspect}"
      end
    end

    # Names as strings; values that are no scalars are refused, because "[1, 2]" in a report is
    # never what was meant. nil is sent as an empty value.
    def self.checked_params(params)
      params.to_h do |name, value|
        case value
        when String, Symbol, Numeric, nil, true, false
          [name.is_a?(Symbol) ? name.name : Value.copy(name.to_s), Value.copy(value)]
        else raise ArgumentError, "parameter #{name} must be a scalar, got #{value.class}"
        end
      end.freeze
    end

    # Bytes that are no UTF-8 go out escaped like all others: the server stores what was sent.
    def self.escape(value)
      text = value.is_a?(String) ? value : value.to_s
      CGI.escape(text.valid_encoding? ? text : text.b)
    end
  end
end
