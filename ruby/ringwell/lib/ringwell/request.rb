# frozen_string_literal: true

module Ringwell
  # One row of a batch: which pool, its key, and the visitor's marketing context.
  #
  # It holds its own JSON, written once when it is made: that is what is sent, and a copy of what
  # the caller gave.
  class Request < Value
    value_fields :pool, :key, :params, :request_id, :overflow, :visitor, secret: [:key],
      computed: [:params]

    # The server says which ids there are; here they must only fit into a path.
    POOL = /\A[A-Za-z0-9._~-]+\z/
    # A number that can be handed out, as the API writes it: ten digits without country code if that is
    # 1, else E.164 with its `+`.
    NUMBER = /\A(?:[2-9]\d{9}|\+[2-9]\d{6,14})\z/
    # Names that the API reads itself: as parameters they would replace the key or the visitor.
    RESERVED = %w[ring_pool_key ringwell_visitor].freeze
    # What a server takes in one request.
    ROWS_MAX = 500
    BODY_BYTES_MAX = 256 * 1024

    # Text that stands in JSON as it is.
    PLAIN = /\A[A-Za-z0-9_ .:~-]*\z/
    VISITOR = "&ringwell_visitor="
    private_constant :PLAIN, :VISITOR

    class << self
      # The body of a batch.
      #
      # @param requests [Array<Request>]
      # @return [String]
      def body(requests) = "{\"requests\":[#{requests.map(&:json).join(",")}]}"

      # The bodies of a batch, each no larger than a server takes.
      #
      # @return [Array<(Array<Request>, String)>]
      def parts(requests)
        return requests.each_slice(ROWS_MAX).flat_map { |rows| parts(rows) } if requests.size > ROWS_MAX

        body = body(requests)
        return [[requests, body]] if body.bytesize <= BODY_BYTES_MAX || requests.size == 1

        half = requests.size / 2
        parts(requests.take(half)) + parts(requests.drop(half))
      end
    end

    # @param pool [String, Integer] the ring pool's id
    # @param key [String] the ring pool's key
    # @param params [Hash, nil] names and scalar values, stored with the allocation
    # @param request_id [String, Numeric, Boolean, nil] echoed in the answer
    # @param overflow [String, nil] what to show if no number can be had
    # @param visitor [String, nil] who keeps the number within its lifetime
    # @raise [ArgumentError] names the field that cannot be sent
    def initialize(pool:, key:, params: nil, request_id: nil, overflow: nil, visitor: nil)
      fill(Rows.new, pool.to_s, key, params, request_id, overflow, visitor)
    end

    # The parameters as text, as the server stores them.
    #
    # @return [Hash{String => String}] frozen
    def params
      query = suffix.split("?", 2)[1]
      query = query[0...query.rindex(VISITOR)] if @visitor
      query.split("&").drop(1).to_h do |pair|
        pair.split("=", 2).map { |text| CGI.unescape(text, Encoding::UTF_8).freeze }
      end.freeze
    end

    # The row as the API reads it.
    def as_json(*)
      row = {"api_suffix" => suffix}
      row["request_id"] = request_id unless request_id.nil?
      row
    end

    def to_json(*) = json

    # @return [String] the row as it is sent, frozen
    attr_reader :json

    # Fills a new row from its fields in the order of {#initialize}: quicker than by keywords. For
    # {Rows} alone; a row that is made already is frozen.
    #
    # @return [self]
    def fill(rows, pool, key, params, request_id, overflow, visitor)
      @pool, @key, head = rows.head(pool, key)
      @json = +head
      overflow.nil? || NUMBER.match?(overflow) or
        raise ArgumentError, "overflow must be ten digits, or + and a country code, got #{overflow.inspect}"
      add_params(params, rows) if params
      @visitor = add_visitor(visitor) if visitor
      @overflow = copy(overflow) if overflow
      @request_id = end_with_id(request_id)
      @json.freeze
      freeze
    end

    private

    # The suffix stands in quotes, and has none itself.
    def suffix = @json.split('"', 5)[3]

    def copy(text) = text.frozen? ? text : text.dup.freeze

    # Values that are no scalars are refused, because "[1, 2]" in a report is never what was meant.
    # nil is sent as an empty value. Bytes that are no UTF-8 are escaped like all others: the server
    # stores what was sent.
    def add_params(params, rows)
      params.is_a?(Hash) or raise ArgumentError, "params must be a hash, got #{params.class}"
      json = @json
      params.each do |name, value|
        case value
        when String then json << rows.name(name) << CGI.escape(value)
        when Symbol, Numeric, nil, true, false then json << rows.name(name) << CGI.escape(value.to_s)
        else raise ArgumentError, "parameter #{name} must be a scalar, got #{value.class}"
        end
      end
    end

    def add_visitor(visitor)
      visitor.is_a?(String) or raise ArgumentError, "visitor must be text, got #{visitor.class}"
      @json << VISITOR << CGI.escape(visitor)
      copy(visitor)
    end

    # The API echoes any scalar of JSON. It takes null too, which nil does not send.
    def end_with_id(id)
      if id.is_a?(String) && id.valid_encoding? && PLAIN.match?(id)
        @json << '","request_id":"' << id << '"}'
      elsif id.nil?
        @json << '"}'
        return
      else
        @json << '","request_id":' << JSON.generate(checked_id(id)) << "}"
      end
      copy(id)
    end

    def checked_id(id)
      valid = case id
      when String then id.valid_encoding?
      when Float then id.finite?
      else id.is_a?(Integer) || id == true || id == false
      end
      valid ? id : raise(ArgumentError, "request_id must be a JSON scalar, got #{id.inspect}")
    end
  end
end
