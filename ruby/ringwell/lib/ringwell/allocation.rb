# frozen_string_literal: true

module Ringwell
  # An allocated promo number, or the overflow number in its place.
  class Allocation < Value
    value_fields :pool, :number, :reason, :request_id, :tracking_url, :national

    # Matches most numbers, faster than {Request::NUMBER}.
    TEN_DIGITS = /\A[2-9]\d{9}\z/
    private_constant :TEN_DIGITS

    # The reasons why a row has its number. The API does not say why a server returned the overflow
    # number; the server's metrics do.
    REASONS = {
      allocated: "the visitor has this number for the pool's lifetime",
      overflow: "the server answered with the pool's overflow number",
      exhausted: "the pool had no number left and the server had no overflow number for it",
      late: "no answer came before the deadline",
      unreachable: "no server accepted the request, or the connection broke",
      failed: "the server failed, or its answer was invalid"
    }.freeze

    # @param pool [String] the ring pool's id
    # @param number [String] ten digits, e.g. "8885550142"; E.164 if the country code is not 1, e.g.
    #   "+493012345678"
    # @param national [String, nil] the number in its country's usual form
    # @param reason [Symbol] one of {REASONS}
    # @raise [ArgumentError] names the invalid field
    def initialize(pool:, number:, reason: :allocated, request_id: nil, tracking_url: "",
      national: nil)
      REASONS.key?(reason) or
        raise ArgumentError, "reason must be one of #{REASONS.keys}, got #{reason.inspect}"
      fill(Value.copy(pool), Value.copy(number), reason, Value.copy(request_id),
        Value.copy(tracking_url), Value.copy(national))
    end

    # Whether this is the number that all visitors share when no other number is available. Calls to
    # it are not attributed to a single visitor.
    def overflow? = reason != :allocated

    # @return [String] e.g. "888-555-0142", or "030 12345678" in Germany
    def formatted
      return national || number if number.start_with?("+")

      "#{number[0, 3]}-#{number[3, 3]}-#{number[6, 4]}"
    end
    alias to_s formatted

    # The row in the API's format.
    def as_json(*)
      row = {"request_id" => request_id, "promo_number_formatted" => formatted,
              "promo_number" => number, "tracking_url" => tracking_url}
      row.delete("request_id") if request_id.nil?
      row["overflow"] = true if overflow?
      row
    end

    def to_json(*args) = as_json.to_json(*args)

    # Fills a new allocation with frozen values, which is faster than keyword arguments. Only for
    # {Batch} and {Allocator}; existing allocations are frozen.
    #
    # @param national [String, nil] need not be frozen; omitted for country code 1, because it
    #   follows from the number
    # @return [self]
    def fill(pool, number, reason, request_id, tracking_url = "", national = nil)
      unless TEN_DIGITS.match?(number)
        Request::NUMBER.match?(number) or
          raise ArgumentError, "number must be ten digits, or + and a country code, got #{number.inspect}"
        @national = national.freeze
      end
      @pool = pool
      @number = number
      @reason = reason
      @request_id = request_id
      @tracking_url = tracking_url || ""
      freeze
    end

    # Like {#fill}, for a number that is known to have ten digits and to belong to this visitor
    # alone.
    #
    # @return [self]
    def fill_plain(pool, number, request_id)
      @pool = pool
      @number = number
      @reason = :allocated
      @request_id = request_id
      @tracking_url = ""
      freeze
    end
  end
end
