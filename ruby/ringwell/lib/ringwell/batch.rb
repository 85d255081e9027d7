# frozen_string_literal: true

module Ringwell
  # The outcomes of a batch, in the order of its requests: each an {Allocation}, a {RowError}, or,
  # if no answer came and the pool's overflow number is not known, the error that came instead.
  class Batch
    include Enumerable

    # @return [Array<Allocation, RowError, Error>] frozen
    attr_reader :outcomes

    def initialize(outcomes)
      @outcomes = outcomes.dup.freeze
      freeze
    end

    def each(&block) = block ? outcomes.each(&block) && self : outcomes.each

    def [](index) = outcomes[index]

    def size = outcomes.size

    # @return [Array<Allocation>] the rows that have a number
    def allocations = grep(Allocation)

    # @return [Array<Error>] the others
    def errors = grep(Error)

    # @return [Array<Allocation>] the rows that have an overflow number
    def overflowed = allocations.select(&:overflow?)

    def ==(other) = other.class == self.class && other.outcomes == outcomes
    alias eql? ==

    def hash = outcomes.hash

    # The answer as the API writes it. Rows without an answer are written as the server writes
    # those that it could not serve in time.
    def as_json(*)
      rows = outcomes.map do |outcome|
        case outcome
        when Allocation, RowError then outcome.as_json
        else {"error_class" => "ServiceUnavailable", "message" => outcome.message}
        end
      end
      {"responses" => rows}
    end

    def to_json(*args) = as_json.to_json(*args)

    # Reads the body of an answer.
    #
    # @param body [String]
    # @param requests [Array<Request>] what was asked
    # @yieldparam index [Integer] of each row that is no number of its own
    # @yieldparam outcome [Allocation, RowError]
    # @yieldreturn [Allocation, RowError] what it becomes
    # @return [Array<Allocation, RowError>]
    # @raise [ProtocolError] if that is no answer to the requests
    def self.read(body, requests)
      rows = JSON.parse(body, freeze: true).fetch("responses")
      rows.size == requests.size or
        raise ProtocolError, "#{requests.size} rows were asked, #{rows.size} answered"
      index = -1
      requests.map do |request|
        row = rows[index += 1]
        number = row["promo_number"]
        check_id(row, request)
        next yield(index, error(row)) unless number

        # Of country code 1 it follows from the number.
        national = row["promo_number_formatted"] if number.start_with?("+")
        reason = row["overflow"] ? :overflow : :allocated
        allocation = Allocation.row(request, number, reason, row["tracking_url"], national)
        row["overflow"] ? yield(index, allocation) : allocation
      end
    rescue JSON::ParserError, KeyError, TypeError, NoMethodError, ArgumentError => error
      raise ProtocolError, "the answer is not one to a batch: #{error.message}"
    end

    # A row that is answered with the number of another visitor would be worse than none. (A server
    # that finds an id unfit leaves it out.)
    def self.check_id(row, request)
      id = row["request_id"]
      id == request.request_id || (id.nil? && !row.key?("request_id")) or
        raise ProtocolError, "the answer has rows of another request"
    end

    def self.error(row)
      RowError.new(error_class: row.fetch("error_class"), message: row["message"].to_s, request_id: row["request_id"])
    end
    private_class_method :check_id, :error

    # Collects the requests of a batch in the block of {Allocator#bulk}.
    class Builder
      # @return [Array<Request>]
      attr_reader :requests

      # @param rows [Rows] of the source that is asked
      def initialize(rows)
        @rows = rows
        @requests = []
      end

      # Adds a row; see {Allocator#allocate}.
      #
      # @param pool [String, Integer]
      # @param key [String, nil]
      # @param params [Hash, nil]
      # @param request_id [String, Numeric, Boolean, nil]
      # @param overflow [String, nil]
      # @param visitor [String, nil]
      # @return [self]
      def allocate(pool, key: nil, params: nil, request_id: nil, overflow: nil, visitor: nil)
        @requests << @rows.make(pool, key, params, request_id, overflow, visitor)
        self
      end
    end
  end
end
