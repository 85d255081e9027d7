# frozen_string_literal: true

module Ringwell
  # One row of a batch: a pool, its key, and the visitor's marketing context.
  #
  # Contains its own JSON, written once on creation. This JSON is sent, and is a copy of the
  # caller's values.
  class Request < Value
    value_fields :pool, :key, :params, :request_id, :overflow, :visitor, secret: [:key],
      computed: [:params]

    # The server checks whether the id exists. Here, it must only fit into a path.
    POOL = /\A[A-Za-z0-9._~-]+\z/
    # A number in the API's format: ten digits if the country code is 1, else E.164 with a `+`.
    NUMBER = /\A(?:[2-9]\d{9}|\+[2-9]\d{6,14})\z/
    # Names that the API interprets. As parameters, they would replace the key or the visitor.
    RESERVED = %w[ring_pool_key ringwell_visitor].freeze
    # The server's limits for one request.
    ROWS_MAX = 500
    BODY_BYTES_MAX = 256 * 1024

    # Precedes the visitor in a suffix.
    VISITOR = "&ringwell_visitor="

    # The body of a batch.
    #
    # @param requests [Array<Request>]
    # @return [String]
    def self.body(requests) = Batch::Builder.of(requests).body

    # @param pool [String, Integer] the ring pool's id
    # @param key [String] the ring pool's key
    # @param params [Hash, nil] names and scalar values, stored with the allocation
    # @param request_id [String, Numeric, Boolean, nil] echoed in the answer
    # @param overflow [String, nil] the number to show if none is available
    # @param visitor [String, nil] identifies the visitor, who keeps the number within its lifetime
    # @raise [ArgumentError] names the field that cannot be sent
    def initialize(pool:, key:, params: nil, request_id: nil, overflow: nil, visitor: nil)
      rows = Rows.new
      row = Batch::Builder.new(rows).allocate(pool, key:, params:, request_id:, overflow:, visitor:)
      @pool, @key = rows.head(row.pools[0], key)
      @request_id = row.ids[0]
      @overflow = row.overflow[0]
      @visitor = Value.copy(visitor)
      @json = row.row(0).freeze
      freeze
    end

    # The parameters as strings, as the server stores them.
    #
    # @return [Hash{String => String}] frozen
    def params
      query = suffix.split("?", 2)[1]
      query = query[0...query.rindex(VISITOR)] if @visitor
      query.split("&").drop(1).to_h do |pair|
        pair.split("=", 2).map { |text| CGI.unescape(text, Encoding::UTF_8).freeze }
      end.freeze
    end

    # The row in the API's format.
    def as_json(*)
      row = {"api_suffix" => suffix}
      row["request_id"] = request_id unless request_id.nil?
      row
    end

    def to_json(*) = json

    # @return [String] the row as sent, frozen
    attr_reader :json

    private

    # The suffix is in quotes, and contains no quotes.
    def suffix = @json.split('"', 5)[3]
  end
end
